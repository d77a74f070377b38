"""Candidates compiled by the processes of a Dask cluster, of which one dies."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import stagekit as sk
from stagekit.tuning.candidates import Job

distributed = pytest.importorskip("distributed", reason="a cluster needs `distributed`, which a step of CI installs")

MODULE = '''
import os
import stagekit as sk

@sk.jit
def add_one(x: sk.Tensor((None,), sk.float32), BLOCK: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(x.shape[0], BLOCK), block=BLOCK))
    i = sk.cuda.block_idx("x") * BLOCK + sk.cuda.thread_idx("x")
    if i < x.shape[0]:
        x[i] = x[i] + 1

def deadly(BLOCK):
    """A factory whose kernel of 96 threads ends every process but the one that tunes."""
    if BLOCK == 96 and os.getpid() != int(os.environ["TUNING_PROCESS"]):
        os._exit(1)
    return add_one.specialize(BLOCK=BLOCK)
'''


@pytest.mark.filterwarnings("ignore")  # of the cluster's own
def test_workers_compile_and_one_that_dies_costs_its_candidate_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster_kernels.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("STAGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TUNING_PROCESS", str(os.getpid()))
    import cluster_kernels

    x = np.arange(10, dtype=np.float32)
    here = list[Job]()
    call = Job.__call__
    monkeypatch.setattr(Job, "__call__", lambda job: (here.append(job), call(job))[1])
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.cluster.scheduler.allowed_failures = 0
        tuned = sk.autotune(cluster_kernels.deadly, {"BLOCK": (32, 64, 96, 128)})
        found = tuned.tune.using(executor=client.get_executor(), rounds=1, progress=False)(x)

    assert ["timed"] * 4 == [each.outcome for each in found.trials]
    assert 96 in {job.config["BLOCK"] for job in here}
    tuned(x)
    assert np.array_equal(x, np.arange(10) + 1)
