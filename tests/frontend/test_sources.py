"""The text of a kernel: taken once, checked against the code that runs; and what the language leaves out."""

from __future__ import annotations

import linecache
import py_compile
import subprocess
import sys
import warnings

import numpy as np
import pytest

import stagekit as sk
from tests.frontend.sources import import_file, module_of, write_module

KERNEL = """
    import stagekit as sk

    @sk.jit
    def kernel(out):
        out[0] = {value}
"""


def run(kernel, *arguments) -> int:
    out = np.full(4, -1, np.int64)
    kernel[1, 1](out, *arguments)
    return int(out[0])


def test_a_file_overwritten_before_the_first_call_gives_the_kernel_that_was_imported(tmp_path):  # Q11
    path = write_module(tmp_path, KERNEL.format(value=7))
    module = import_file(path)
    write_module(tmp_path, "\n\n# shifted\n" + KERNEL.format(value=8), path.stem)

    assert run(module.kernel) == 7


def test_a_helper_whose_file_was_edited_is_stale_or_itself(tmp_path):  # Q11
    text = "def helper(x):\n    return x + {n}\n\n\ndef other(x):\n    return x * 100\n"
    path = write_module(tmp_path, text.format(n=1))
    helper = import_file(path).helper
    path.write_text("# one line more\n\n" + text.format(n=2), encoding="utf-8")

    @sk.jit
    def kernel(out):
        out[0] = helper(sk.int64(10))

    try:
        assert run(kernel) == 11
    except sk.StagekitError as error:
        assert error.id == "SOURCE_STALE"


def test_code_without_text_is_refused_by_name():
    scope = {"sk": sk}
    exec("@sk.jit\ndef kernel(out):\n    out[0] = 1\n", scope)

    with pytest.raises(sk.StagekitError) as caught:
        run(scope["kernel"])
    assert caught.value.id == "SOURCE_UNAVAILABLE"
    assert "kernel" in str(caught.value)


def test_text_kept_under_the_same_name_for_other_code_is_no_text_of_this(monkeypatch):
    """Python 3.13 keeps the text of `python -c`, whose file is called `<string>` as that of every `exec` is."""
    other = "import os\nprint(os.name)\n"
    monkeypatch.setitem(linecache.cache, "<string>", (len(other), None, other.splitlines(keepends=True), "<string>"))

    test_code_without_text_is_refused_by_name()


def test_a_helper_without_text_runs_at_compile_time_only():
    scope: dict = {}
    exec("def helper(x):\n    return x + 1\n", scope)
    helper = scope["helper"]

    @sk.jit
    def static(out):
        out[0] = helper(4)

    @sk.jit
    def traced(out, x):
        out[0] = helper(x)

    assert run(static) == 5
    with pytest.raises(sk.StagekitError) as caught:
        run(traced, 3)
    assert caught.value.id == "SOURCE_UNAVAILABLE"


def test_two_lambdas_on_one_line_are_told_apart():
    f, g = lambda x: x + 1, lambda x: x + 2  # fmt: skip

    @sk.jit
    def kernel(out, x):
        out[0] = f(x) * 100 + g(x)

    assert run(kernel, 3) == 405


def test_functions_of_one_name_are_told_apart(tmp_path):
    module = module_of(
        tmp_path,
        """
        import stagekit as sk

        def make(n):
            if n:
                @sk.jit
                def kernel(out):
                    out[0] = 1
            else:
                @sk.jit
                def kernel(out):
                    out[0] = 2
            return kernel
        """,
    )
    assert (run(module.make(1)), run(module.make(0))) == (1, 2)


@pytest.mark.parametrize(
    "body",
    [
        "        x = len('''a\n        b''')\n        out[0] = x",
        "        x = 8 + len('''a\nb''')\n        out[0] = x",
        '        """Says\n        what it does\n        """\n\n# before the end\n        out[0] = 11',
        "        out[0] = (5 +\n6\n)\n# after the end",
        "        out[0] = 5 + \\\n6\n        return\n        x = 1",
    ],
)
@pytest.mark.parametrize("decorator", ["@sk.jit", "@sk.jit(\n        fastmath=True,\n    )"])
def test_lines_of_an_indented_kernel_may_begin_anywhere(tmp_path, body, decorator):
    """Where a function ends shows in how its lines are indented, but not within brackets and texts."""
    path = tmp_path / "indented_lines.py"
    kernel = f"    {decorator}\n    def kernel(out):\n{body}\n"
    path.write_text(
        f"import stagekit as sk\n\ndef make():\n{kernel}    return kernel\n\nkernel = make()\n", encoding="utf-8"
    )

    assert run(import_file(path).kernel) == 11


def test_methods_and_decorated_helpers_are_found(tmp_path):
    module = module_of(
        tmp_path,
        """
        import functools
        import stagekit as sk

        def twice(fn):
            @functools.wraps(fn)
            def wrapper(x):
                return fn(fn(x))
            return wrapper

        class Holder:
            @staticmethod
            @sk.jit
            def kernel(out, x):
                out[0] = Holder.add(x)

            @staticmethod
            @twice
            def add(x):
                return x + 5
        """,
    )
    assert run(module.Holder.kernel, 3) == 13


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("try:\n    x = 1\nexcept ValueError:\n    pass", "`try`"),
        ("raise ValueError", "`raise`"),
        ("with open('f') as f:\n    pass", "`with`"),
        ("import math", "`import`"),
        ("from math import pi", "`import`"),
        ("global g\ng = 1", "`global`"),
        ("class C:\n    pass", "a class definition"),
        ("async def f():\n    pass", "`async def`"),
        ("def g():\n    yield 1", "`yield`"),
    ],
)
def test_what_the_language_leaves_out_is_refused_with_a_caret(statement, what, tmp_path):
    body = statement.replace("\n", "\n    ")
    text = f"import stagekit as sk\n\n@sk.jit\ndef kernel(out):\n    out[0] = 1\n    {body}\n"
    path = tmp_path / "left_out.py"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(sk.StagekitError) as caught:
        run(import_file(path).kernel)
    assert caught.value.id == "UNSUPPORTED_SYNTAX"
    assert what in str(caught.value)
    assert "^" in str(caught.value)
    assert caught.value.loc.line >= 6


@pytest.mark.parametrize("statement", ["yield 1", "yield from ()"])
def test_a_generator_is_no_kernel(statement, tmp_path):
    text = f"import stagekit as sk\n\n@sk.jit\ndef kernel(out):\n    {statement}\n"
    path = tmp_path / "generator.py"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(sk.StagekitError) as caught:
        import_file(path)
    assert caught.value.id == "NOT_A_FUNCTION"
    assert "`yield`" in str(caught.value)


def test_an_unsupported_construct_is_found_even_on_a_path_not_taken():
    @sk.jit
    def kernel(out, N: sk.constexpr = 0):
        if N:
            raise ValueError
        out[0] = 1

    with pytest.raises(sk.StagekitError) as caught:
        run(kernel)
    assert caught.value.id == "UNSUPPORTED_SYNTAX"


def test_nothing_is_parsed_before_it_is_needed():
    @sk.jit
    def kernel(out):
        with nothing:  # noqa: F821
            out[0] = 1

    assert "kernel" in repr(kernel)


def test_a_thousand_statements_parse_in_linear_time(tmp_path):  # T12
    import time

    def seconds(count):
        lines = "\n".join(f"    x{i} = x{i - 1} + {i}" for i in range(1, count))
        path = write_module(tmp_path, "")
        path.write_text(f"import stagekit as sk\n\n@sk.jit\ndef kernel(out, x0):\n{lines}\n    out[0] = x{count - 1}\n")
        kernel = import_file(path).kernel.specialize(out=sk.Tensor((None,), sk.int64), x0=sk.int64)
        start = time.process_time()
        _ = kernel.ir
        return time.process_time() - start

    seconds(50)
    small, large = (min(seconds(n) for _ in range(2)) for n in (250, 1000))
    assert large < 12 * small  # four times the text; quadratic growth would be sixteen


WARNED_ABOUT = """
    import stagekit as sk

    def helper(x):
        "A digit: \\d"
        assert x is not 5, "an \\escape"
        return x

    @sk.jit
    def kernel(out):
        "A digit: \\d"
        f = lambda v: v if v is not 5 else 0
        out[0] = helper(7) + f(0)

    @sk.jit
    def annotated(out: "sk.Tensor(('\\d' and 4,), sk.int64)"):
        out[0] = 7
"""
LAUNCH = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import compiled
for kernel in (compiled.kernel, compiled.annotated):
    out = np.zeros(4, np.int64)
    kernel[1, 1](out)
    assert out[0] == 7
"""


@pytest.mark.parametrize("option", ["-Werror", "-Wdefault"])
def test_what_python_warned_about_at_the_import_is_no_news_when_the_text_is_read_again(tmp_path, option):
    """R14: imported from a .pyc, which warns of nothing, so that every warning seen here comes from reading again."""
    path = write_module(tmp_path, WARNED_ABOUT, "compiled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        py_compile.compile(str(path))

    ran = subprocess.run([sys.executable, option, "-c", LAUNCH, tmp_path], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_filters_and_records_of_warnings_are_left_as_they_were(tmp_path):
    module = module_of(tmp_path, WARNED_ABOUT.replace("\\d", "d").replace("\\e", "e").replace("is not 5", "!= 5"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = list(warnings.filters)

        assert run(module.kernel) == 7

        assert warnings.filters == before
    assert seen == []
