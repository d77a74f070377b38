"""What a second process finds: the kernel it would compile itself, without compiling, and never another."""

from __future__ import annotations

from tests.cache.places import Run
from tests.cases.captured_state import ALL, HEAD, KERNEL

FILL = """
@sk.jit
def fill(out: sk.Tensor((None,), sk.float32)):
    i = sk.cuda.thread_idx("x")
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
    out[i] = {value}
"""


def test_a_constant_that_changed_is_seen_and_one_that_did_not_is_a_hit(new_process: Run) -> None:  # P11
    program = (
        "STEP = {step}\n"
        + FILL.format(value="i * STEP")
        + "\nout = np.zeros(4, np.float32); fill(out); RESULT = out.tolist()"
    )

    three = new_process(program.format(step=3))
    four = new_process(program.format(step=4))
    again = new_process(program.format(step=4))

    assert [0, 3, 6, 9] == three["result"]
    assert [0, 4, 8, 12] == four["result"]
    assert again["result"] == four["result"]
    assert (1, 1) == (four["traced"], four["compiled"])
    assert (1, 0, 1) == (again["traced"], again["compiled"], again["read"])


def test_keys_do_not_depend_on_the_hash_seed(new_process: Run) -> None:  # P15
    program = (
        'scale = lambda x: x * {"a": 2, "b": 3}["b"]\nNAMES = ("x", "y")\n'
        + FILL.format(value="scale(i) + len(NAMES)")
        + "\nout = np.zeros(4, np.float32); fill(out); RESULT = out.tolist()"
    )

    first = new_process(program, seed=1)
    second = new_process(program, seed=2)

    assert [2, 5, 8, 11] == first["result"] == second["result"]
    assert 0 == second["compiled"]


CONSTEXPRS = """
@sk.jit
def show(out: sk.Tensor((None,), sk.float64), V: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))
    out[0] = 1.0 / V if V else (-1.0 if str(V)[0] == "-" else 0.0)
    out[1] = 7 // V if V else 0
    out[2] = 1 if isinstance(V, bool) else 2

RESULT = []
for value in (1, True, 2.0, np.int32(2), 0.0, -0.0, np.int64(4), np.int64(4)):
    out = np.zeros(3)
    show.specialize(V=value)(out)
    RESULT.append(out.tolist())
"""


def test_equal_values_of_other_types_are_other_kernels(new_process: Run) -> None:  # P15
    first = new_process(CONSTEXPRS)
    second = new_process(CONSTEXPRS, seed=9)

    expected = [[1, 7, 2], [1, 7, 1], [0.5, 3, 2], [0.5, 3, 2], [0, 0, 2], [-1, 0, 2], [0.25, 1, 2], [0.25, 1, 2]]
    assert expected == first["result"] == second["result"]
    assert 7 == first["traced"] == second["read"]
    assert 0 == second["compiled"]


USES_A_MODULE = """
import helpers
from helpers import shift

@sk.jit
def fill(out: sk.Tensor((None,), sk.float32)):
    i = sk.cuda.thread_idx("x")
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
    out[i] = shift(i) + helpers.twice(helpers.BASE)
{below}
out = np.zeros(4, np.float32); fill(out); RESULT = out.tolist()
"""
HELPERS = """
BASE = {base}
def shift(x):
    return x + {by}

def twice(x):
    return inner(x) * 2

def inner(x):
    return x
"""


def test_an_edited_helper_is_seen_and_an_unrelated_line_is_not(new_process: Run) -> None:  # P16
    program = USES_A_MODULE.format(below="")
    first = new_process(program, helpers=HELPERS.format(base=1, by=0))
    edited = new_process(program, helpers=HELPERS.format(base=1, by=5))
    rebased = new_process(program, helpers=HELPERS.format(base=2, by=5))
    commented = new_process(
        "# a comment above\n\n" + USES_A_MODULE.format(below="# and below\nUNRELATED = 3"),
        helpers="# another\n" + HELPERS.format(base=2, by=5),
    )
    deep = new_process(program, helpers=HELPERS.format(base=2, by=5).replace("return x\n", "return x + 1\n"))

    assert [2, 3, 4, 5] == first["result"]
    assert [7, 8, 9, 10] == edited["result"]
    assert [9, 10, 11, 12] == rebased["result"] == commented["result"]
    assert 0 == commented["compiled"]
    assert [11, 12, 13, 14] == deep["result"]


EXPLICIT = """
@sk.jit
def fill(out: sk.Tensor((None,), sk.float32), C: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
    out[i] = i + C

assert fill.specialize(C=1) is fill.specialize(C=1)
out = np.zeros(4, np.float32)
fill.specialize(C=1)(out); fill.specialize(C=1)(out); fill(out, 1)
RESULT = out.tolist()
"""


def test_specialising_by_name_and_by_call_share_one_kernel_and_the_disk(new_process: Run) -> None:  # P18, Q13
    first = new_process(EXPLICIT)
    second = new_process(EXPLICIT)

    assert [1, 2, 3, 4] == first["result"] == second["result"]
    assert (1, 1) == (first["traced"], first["compiled"])
    assert 0 == second["compiled"]


FACTORY = """
class Config:
    BIAS = {bias}

def make(k, table):
    def inner(x):
        return x * k + Config.BIAS
    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32)):
        i = sk.cuda.thread_idx("x")
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
        out[i] = inner(i) + table[1]
    return fill

def run_both(a, b):
    outs = [np.zeros(4, np.float32) for _ in range(2)]
    for _ in range(2):
        a(outs[0]); b(outs[1])
    return [o.tolist() for o in outs]

RESULT = run_both(make(2, [0, 0]), make(3, [0, {entry}]))
"""


def test_factories_with_other_captures_are_other_kernels_in_memory_and_on_disk(new_process: Run) -> None:  # P14, Q17
    first = new_process(FACTORY.format(bias=0, entry=10))
    second = new_process(FACTORY.format(bias=0, entry=10))
    other_entry = new_process(FACTORY.format(bias=0, entry=20))
    other_bias = new_process(FACTORY.format(bias=1, entry=10))

    assert [[0, 2, 4, 6], [10, 13, 16, 19]] == first["result"] == second["result"]
    assert 0 == second["compiled"]
    assert [[0, 2, 4, 6], [20, 23, 26, 29]] == other_entry["result"]
    assert [[1, 3, 5, 7], [11, 14, 17, 20]] == other_bias["result"]


TABLE = """
def f(x): return x + {by}
def g(x): return x * 2
TABLE = {{"add": f, "mul": g}}

@sk.jit
def fill(out: sk.Tensor((None,), sk.float32), OP: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
    out[i] = TABLE[OP](i)

out = np.zeros(4, np.float32); fill.specialize(OP="add")(out); RESULT = out.tolist()
"""


def test_a_helper_that_was_chosen_from_a_table_is_part_of_the_key(new_process: Run) -> None:  # P10
    assert [1, 2, 3, 4] == new_process(TABLE.format(by=1))["result"]
    assert [5, 6, 7, 8] == new_process(TABLE.format(by=5))["result"]
    assert [1, 2, 3, 4] == new_process(TABLE.format(by=1))["result"]


REDEFINED = (
    """
BASE = 1
@sk.inline
def helper(x):
    return x + BASE
"""
    + FILL.format(value="helper(i)")
    + """
def now():
    out = np.zeros(4, np.float32); fill(out); return out.tolist()

RESULT = [now()]
@sk.inline
def helper(x):
    return x * 10
RESULT.append(now())
BASE = 7
RESULT.append(now())
@sk.inline
def helper(x):
    return x + BASE
RESULT.append(now())
"""
)


def test_a_helper_that_is_redefined_and_a_constant_that_is_patched_are_seen(new_process: Run) -> None:  # Q24, P12
    expected = [[1, 2, 3, 4], [0, 10, 20, 30], [0, 10, 20, 30], [7, 8, 9, 10]]

    assert expected == new_process(REDEFINED)["result"]
    warm = new_process(REDEFINED)
    assert expected == warm["result"]
    assert 0 == warm["compiled"]


MUTATED = (
    """
VALUES = [1, 2]
C = 17
"""
    + FILL.format(value="VALUES[0] + C")
    + """
held = fill.specialize()
def now(kernel):
    out = np.zeros(4, np.float32); kernel(out); return out[0].item()

RESULT = [now(fill)]
VALUES[0] = 9
RESULT.append(now(fill))
C = 42
RESULT += [now(fill), now(held)]
"""
)


def test_a_captured_list_that_changes_is_seen_by_the_kernel_and_not_by_a_held_specialisation(  # P12
    new_process: Run,
) -> None:
    for _ in range(2):
        assert [18, 26, 51, 18] == new_process(MUTATED)["result"]


BROKEN = (
    FILL.format(value="i")
    + """
@sk.jit
def bad(out: sk.Tensor((None,), sk.float32)):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=4))
    out[0] = undefined_name

RESULT = []
out = np.zeros(4, np.float32)
for _ in range(3):
    try:
        bad(out)
    except sk.StagekitError as error:
        RESULT.append(str(error).splitlines()[0])
    fill(out)
RESULT.append(out.tolist())
"""
)


def test_a_kernel_that_fails_fails_every_time_and_with_a_warm_cache_too(new_process: Run) -> None:  # P20
    cold = new_process(BROKEN)
    warm = new_process(BROKEN)

    assert cold["result"] == warm["result"]
    assert 1 == len(set(cold["result"][:3]))
    assert "undefined_name" in cold["result"][0] or "UNKNOWN_NAME" in cold["result"][0]
    assert [0, 1, 2, 3] == warm["result"][3]
    assert 0 == warm["compiled"]


SHIFTED = """
import pathlib, victim
RESULT = []
def now():
    out = np.zeros(4, np.float32)
    try:
        victim.fill(out); RESULT.append(out.tolist())
    except sk.StagekitError as error:
        RESULT.append("STALE" if "SOURCE_STALE" in str(error) else str(error))

path = pathlib.Path("victim.py")
path.write_text("# shifted\\n\\n" + path.read_text().replace("+ 1", "+ 2"))
now()
"""
VICTIM = "import stagekit as sk\ndef helper(x):\n    return x + 1\n" + FILL.format(value="helper(i)")


def test_a_file_that_is_edited_after_the_import_gives_the_imported_kernel_or_an_error(new_process: Run) -> None:  # Q11
    for _ in range(2):
        assert new_process(SHIFTED, victim=VICTIM)["result"][0] in ("STALE", [1, 2, 3, 4])
    fresh = new_process("import victim\nout = np.zeros(4, np.float32); victim.fill(out); RESULT = out.tolist()")
    assert [2, 3, 4, 5] == fresh["result"]


SIZES = """
@sk.jit
def fill(out: sk.Tensor((None,), sk.float32), n):
    i = sk.cuda.block_idx("x") * 4 + sk.cuda.thread_idx("x")
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 4), block=4))
    if i < n:
        out[i] = 1
RESULT = []
for n in (17, 18, 1000):
    out = np.zeros(n, np.float32); fill(out, n); RESULT.append(out.sum().item())
"""


def test_run_time_sizes_never_compile_anew(new_process: Run) -> None:  # Q19
    found = new_process(SIZES)

    assert [17, 18, 1000] == found["result"]
    assert (1, 1) == (found["traced"], found["compiled"])


PLACES = (
    FILL.format(value="i").replace("    out[i]", "    assert i < 3, 'too far'\n    out[i]")
    + """
try:
    fill(np.zeros(4, np.float32)); RESULT = None
except sk.KernelAssertionError as error:
    RESULT = str(error)
"""
)


def test_an_assert_names_the_line_where_it_is_now(new_process: Run) -> None:
    there = new_process(PLACES)
    moved = new_process("# one line more\n" + PLACES)
    back = new_process("# one line more\n" + PLACES)

    line = int(there["result"].split("program.py:")[1].split(":")[0])
    assert f"program.py:{line + 1}:" in moved["result"] == back["result"]
    assert 0 == back["compiled"]


IMPURE = (
    """
import os
def from_outside():
    return int(os.environ["OUTSIDE"])
"""
    + FILL.format(value="from_outside()")
    + "\nout = np.zeros(4, np.float32); fill(out); RESULT = out[0].item()"
)


def test_a_kernel_that_asks_the_world_at_compile_time_gets_what_the_world_says_now(new_process: Run) -> None:
    assert [1, 2] == [new_process(IMPURE, environment={"OUTSIDE": v})["result"] for v in "12"]


def test_printing_while_specialising_is_repeated(new_process: Run) -> None:
    program = FILL.format(value="i").replace("    out[i]", "    sk.static_print('four')\n    out[i]") + (
        "\nimport io, contextlib\ntext = io.StringIO()\nwith contextlib.redirect_stdout(text):\n"
        "    fill(np.zeros(4, np.float32))\nRESULT = text.getvalue()"
    )

    assert "four\n" == new_process(program)["result"] == new_process(program)["result"]


CASES = """
import importlib
RESULT = []
for number in range({count}):
    case = importlib.import_module(f"case_{{number}}")
    out = np.zeros(1)
    case.kernel[1, 1](out)
    assert out[0] == case.read(), number
    RESULT.append(out[0])
"""


def test_what_another_process_left_on_disk_is_taken_only_where_it_means_the_same(
    new_process: Run,
) -> None:  # R1, R3, R4
    """Each kind of state outside, as it is and changed before the kernel is first used."""
    cases = {kind: case for kind, case in ALL.items() if "id(" not in case[0]}
    program = CASES.format(count=len(cases))
    texts = [(f"{HEAD}{setup}{KERNEL.format(read=read)}", change) for setup, read, change in cases.values()]
    there = {f"case_{number}": text for number, (text, _) in enumerate(texts)}
    changed = {f"case_{number}": f"{text}\n{change}\n" for number, (text, change) in enumerate(texts)}

    before, after = new_process(program, **there), new_process(program, **changed)
    again = new_process(program, **there)

    assert before["result"] == again["result"]
    assert all(a != b for a, b in zip(before["result"], after["result"], strict=True))
    assert 0 == again["compiled"]
