"""A long run: several workers, each case in one of them, and a report whatever happens.

Workers get seeds in order, a few ahead. One that ends, or that is silent for too long, is a failure of the seed it had; the seeds
behind it go to others. One that holds too much memory is replaced. The run ends when there are no more seeds, when its time
is over, when enough has failed, or when `stop` is called, as the command does for SIGINT and SIGTERM.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tqdm import tqdm

from tools.fuzz.harness import MOST_FAILURES, SHRINK_SECONDS, Failure, Fuzzer, Outcome, Problem, keep, spoils
from tools.fuzz.worker import Message, work

_AHEAD = 2  # seeds that a worker has: it never waits for the next
_POLL_SECONDS = 0.2
_START_SECONDS = 60.0  # to start a process, on a busy machine
_GRACE_SECONDS = 10.0  # for the last cases, when time is over


@dataclass(frozen=True)
class Plan:
    """What to run. seconds: at most, None without limit. silence_s: after which a worker counts as hung."""

    make: Callable[[], Fuzzer]
    targets: Sequence[str]
    seeds: range
    jobs: int = 1
    seconds: float | None = None
    corpus: Path | None = None
    silence_s: float = 600.0  # a case of some seconds takes minutes on a machine that does much else
    memory_mb: int = 1500
    most_failures: int = MOST_FAILURES


@dataclass(eq=False)
class Worker:
    """A process, the seeds it has, and the failure that it shrinks. allowed_s: silence beyond what is usual."""

    process: BaseProcess
    connection: Connection[int | None, Message]
    seeds: deque[int] = field(default_factory=deque)
    heard_at: float = field(default_factory=time.monotonic)
    allowed_s: float = _START_SECONDS
    shrinking: Failure | None = None
    memory_mb: int = 0

    @classmethod
    def start(cls, plan: Plan) -> Worker:
        """A process of its own, not a fork: a driver that was loaded does not survive one."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(plan.make, plan.targets, theirs), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    def give(self, seed: int) -> None:
        if not self.seeds:
            self.heard_at = time.monotonic()
        self.seeds.append(seed)
        self.connection.send(seed)

    def silent_s(self) -> float:
        """How long it has said nothing, where it has something to say."""
        return time.monotonic() - self.heard_at - self.allowed_s if self.seeds else 0.0

    def hear(self, message: Message) -> None:
        self.heard_at = time.monotonic()
        self.shrinking = None if message.is_last else message.failure
        self.allowed_s = SHRINK_SECONDS if self.shrinking else 0.0

    def end(self) -> str:
        """Kill it if it still runs; how it ended, in words."""
        ended = self.process.exitcode is not None
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        if not ended:
            return "hung, and was killed"
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"


class Fleet:
    """Runs a plan. outcome: so far. unfinished: seeds that were given out and not heard of again."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.fuzzer = plan.make()
        self.outcome = Outcome()
        self.unfinished: list[int] = []
        self.replaced = 0
        self.most_memory_mb = 0
        self._left: Iterator[int] = iter(plan.seeds)
        self._again: deque[int] = deque()
        self._workers: list[Worker] = []
        self._is_stopped = False
        self._start = time.monotonic()
        known = len(plan.seeds) if plan.seconds is None else None
        self._bar = tqdm(total=known, desc=self.fuzzer.name, unit=" cases", disable=None)  # None: quiet in a pipe

    def stop(self) -> None:
        """Give out no more seeds, and end without waiting for those that are out."""
        self._is_stopped = True

    def run(self) -> Outcome:
        """Until the end; whatever is raised meanwhile, no worker stays behind."""
        try:
            self._workers = [Worker.start(self.plan) for _ in range(self.plan.jobs)]
            for worker in self._workers:
                self._feed(worker)
            while any(worker.seeds for worker in self._workers) and not self._is_late():
                self._listen()
                self._look_after_workers()
                self._tell_progress()
        finally:
            self._end()
        return self.outcome

    # -- seeds --------------------------------------------------------------------------------------------------

    def _feed(self, worker: Worker) -> None:
        while len(worker.seeds) < _AHEAD and not self._is_over():
            seed = self._again.popleft() if self._again else next(self._left, None)
            if seed is None:
                return
            worker.give(seed)

    def _is_over(self) -> bool:
        is_out_of_time = self.plan.seconds is not None and self._seconds() > self.plan.seconds
        return self._is_stopped or is_out_of_time or len(self.outcome.failed) >= self.plan.most_failures

    def _is_late(self) -> bool:
        is_out_of_time = self.plan.seconds is not None and self._seconds() > self.plan.seconds + _GRACE_SECONDS
        return self._is_stopped or is_out_of_time

    def _seconds(self) -> float:
        return time.monotonic() - self._start

    # -- workers ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        by_connection = {worker.connection: worker for worker in self._workers}
        for ready in wait(list(by_connection), _POLL_SECONDS):
            worker = by_connection[ready]  # type: ignore[index]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join(_GRACE_SECONDS)
                self._lose(worker)
                continue
            self._hear(worker, message)

    def _hear(self, worker: Worker, message: Message) -> None:
        worker.hear(message)
        if message.seed is None or not message.is_last:
            return
        worker.seeds.popleft()
        worker.memory_mb = message.memory_mb
        self.most_memory_mb = max(self.most_memory_mb, message.memory_mb)
        self.outcome.cases += 1
        self.outcome.counts.update(message.counts)
        if message.failure:
            self._note(message.failure)
        if message.failure and spoils(message.failure.problem, self.plan.targets):
            self._retire(worker)
        elif worker.memory_mb <= self.plan.memory_mb:
            self._feed(worker)

    def _look_after_workers(self) -> None:
        for worker in list(self._workers):
            if worker.silent_s() > self.plan.silence_s:
                self._lose(worker)
            elif worker.memory_mb > self.plan.memory_mb and not worker.seeds:
                self._retire(worker)

    def _retire(self, worker: Worker) -> None:
        """Nobody is to blame; what it still had is for others."""
        self._again.extend(worker.seeds)
        worker.end()
        self._replace(worker)

    def _lose(self, worker: Worker) -> None:
        """It ended or hangs: that is a failure of the seed it had. What else it had is tried again."""
        how = worker.end()
        if worker.seeds:
            seed = worker.seeds.popleft()
            self.outcome.cases += 1
            self._note(worker.shrinking or self._ended_by(seed, how))
        self._retire(worker)

    def _ended_by(self, seed: int, how: str) -> Failure:
        return Failure(seed, self.fuzzer.draw(seed), Problem("the process", f"the process {how}"))

    def _replace(self, worker: Worker) -> None:
        self.replaced += 1
        self._workers.remove(worker)
        if not self._is_over():
            self._workers.append(Worker.start(self.plan))
            self._feed(self._workers[-1])

    def _end(self) -> None:
        for worker in self._workers:
            if worker.shrinking:
                self._note(worker.shrinking)
                worker.seeds.popleft()
            self.unfinished += worker.seeds
            worker.process.kill()
        for worker in self._workers:
            worker.end()
        self.unfinished += self._again
        self.outcome.seconds = self._seconds()
        self._bar.close()

    # -- telling ------------------------------------------------------------------------------------------------

    def _note(self, failure: Failure) -> None:
        self.outcome.failed.append(failure)
        keep(self.fuzzer, failure, self.plan.corpus)
        tqdm.write(f"{self.fuzzer.name}: seed {failure.seed}: {failure.problem.text}", file=sys.stderr)

    def _tell_progress(self) -> None:
        memory = sum(worker.memory_mb for worker in self._workers)
        self._bar.set_postfix_str(f"{len(self.outcome.failed)} failed, {memory} MB", refresh=False)
        self._bar.update(self.outcome.cases - self._bar.n)
