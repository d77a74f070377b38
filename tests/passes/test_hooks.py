"""Running passes: hooks, dumps, checks between passes, and what a crash says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagekit.diagnostics import InternalError, StagekitError
from stagekit.intrinsics import by_name
from stagekit.ir import Function
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import VerifyError
from stagekit.passes import PassContext
from stagekit.passes.dce import dce
from stagekit.passes.fold import fold
from stagekit.passes.pipeline import Dump, VerifyEach, dump_from_config, hooks_from_config, run_passes
from tools.ir_parser import parse_function

CPU = PassContext("cpu", 0, fastmath=False, debug=False)
TEXT = """\
func @f(%x: i32) {
  %0 = const 0 : i32
  %1 = binary.add %x, %0 : i32
  yield()
}
"""
DONE = "func @f(%x: i32) {\n  yield()\n}\n"


@pytest.fixture
def fn() -> Function:
    return parse_function(TEXT, by_name)


def test_passes_run_in_order_between_hooks(fn: Function) -> None:
    seen: list[tuple[str, int]] = []

    result = run_passes(fn, (fold, dce), CPU, (lambda stage, fn: seen.append((stage, len(fn.body.ops))),))

    assert DONE == print_function(result)
    assert [("trace", 3), ("fold", 2), ("dce", 1)] == seen


def test_a_pass_that_finds_nothing_gives_the_same_function() -> None:
    done = parse_function(DONE, by_name)

    assert run_passes(done, (fold, dce), CPU, ()) is done


def test_a_crash_names_the_pass_and_shows_its_ir(fn: Function) -> None:
    def explode(fn: Function, context: PassContext) -> Function:
        return fn.body.ops[99]

    with pytest.raises(InternalError) as caught:
        run_passes(fn, (explode,), CPU, ())

    assert str(caught.value).startswith("pass `explode` failed on `f`: IndexError")
    assert TEXT in str(caught.value)


def test_verify_each_names_the_pass_that_broke_the_ir(fn: Function) -> None:
    def shorten(fn: Function, context: PassContext) -> Function:
        return parse_function(TEXT.replace("  yield()\n", ""), by_name)

    with pytest.raises(VerifyError, match="a block ends in a terminator") as caught:
        run_passes(fn, (fold, shorten, dce), CPU, (VerifyEach(),))

    assert ["after pass `shorten`"] == caught.value.__notes__


def test_a_dump_goes_to_numbered_files(fn: Function, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "dumps"
    dump = Dump(frozenset({"all"}), folder)

    run_passes(fn, (fold, dce), CPU, (dump,))
    dump.show("llvm", lambda: "; text of a backend")

    assert ["00-trace.txt", "01-fold.txt", "02-dce.txt", "03-llvm.txt"] == sorted(p.name for p in folder.iterdir())
    assert DONE == (folder / "02-dce.txt").read_text(encoding="utf-8")


def test_a_dump_shows_the_stages_asked_for(
    fn: Function, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STAGEKIT_DUMP", "trace, dce")

    run_passes(fn, (fold, dce), CPU, hooks_from_config())

    assert f"// ---- trace ----\n{TEXT}\n// ---- dce ----\n{DONE}\n" == capsys.readouterr().err
    assert dump_from_config().stages == {"trace", "dce"}


def test_a_folder_for_dumps_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(
        StagekitError, match=r"BAD_SWITCH(.|\n)*STAGEKIT_DUMP_DIR(.|\n)*a folder that can be written to"
    ):
        Dump(frozenset({"all"}), tmp_path / "file").show("llvm", lambda: "text")


def test_switches_hang_on_the_hooks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STAGEKIT_VERIFY", raising=False)
    monkeypatch.delenv("STAGEKIT_DUMP", raising=False)
    assert () == hooks_from_config()

    monkeypatch.setenv("STAGEKIT_VERIFY", "each")
    monkeypatch.setenv("STAGEKIT_DUMP", "all")
    monkeypatch.setenv("STAGEKIT_DUMP_DIR", str(tmp_path))
    verifying, dump = hooks_from_config()

    assert isinstance(verifying, VerifyEach)
    assert Dump(frozenset({"all"}), tmp_path) == dump
