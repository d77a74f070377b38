"""What every kernel in a user's hands has: brackets, call, `prepare`, and what can be looked at without a launch.

A class of kernels says which specialisation a call means (`_resolve`). The launch itself is written once, here:

    kernel[grid](x, n)    native code, where there is any for these brackets and arguments; else
                          _resolve -> Specialization.kernel_for -> Kernel.launch, and `_offer` has native code for the next time
"""

from __future__ import annotations

import functools
import inspect
import os
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from stagekit import ranges
from stagekit.artifact import Artifact, Style
from stagekit.diagnostics import OfEach, StagekitError, conceal, expose, hide_frames, shown, wrong_arguments
from stagekit.display import Listing, table
from stagekit.forks import importing
from stagekit.frontend.parameters import Parameters
from stagekit.frontend.traced import Traced, trace_target
from stagekit.jit.compilation import capability_at_hand
from stagekit.jit.history import History
from stagekit.jit.native_launchers import NativeLaunchers, brackets_text, provide_support
from stagekit.jit.options import check_compile
from stagekit.jit.variant import Variant
from stagekit.runtime.kernel import Kernel, OtherEntry
from stagekit.runtime.launch_config import exact_key, is_exact
from stagekit.runtime.native_process import CallShape, PreparedLaunch
from stagekit.signature import Choice, Signature

if TYPE_CHECKING:
    from stagekit.backends.ptxas import CompileReport

T = TypeVar("T")

Launch = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""From the key in the brackets (None: there are none), arguments and keywords to what the call gives."""


class Specialized(Protocol):
    """What a launch needs of a specialisation."""

    @property
    def constexprs(self) -> Mapping[str, Any]: ...
    def call_shape(self, variant: Variant) -> CallShape: ...
    def kernel_for(
        self, key: Any, values: tuple[Any, ...], target: str | None, choice: Choice | None = None
    ) -> tuple[Variant, Kernel]: ...


Resolved = tuple[Specialized, tuple[Any, ...], str | None]
"""The specialisation that a call means, its run-time arguments in order, and the target where that is fixed."""


class Launcher:
    """`kernel[key]`: called with arguments, it calls `launch` with the key and them.

    entries: native code by brackets. It is used as soon as there is some, also where a user keeps `kernel[key]`, and with it
    the stream in `key`.
    """

    __slots__ = ("_entries", "_exact", "_key", "_launch")

    def __init__(self, launch: Launch, key: Any, entries: Mapping[Any, tuple[Any, Any]] | None = None):
        self._launch = launch
        self._key = key
        self._exact = key if entries is None else exact_key(key)
        self._entries = entries if entries is not None and is_exact(self._exact) else {}

    __doc__ = OfEach(lambda launcher: launcher._kernel.__doc__, __doc__)
    __signature__ = OfEach(lambda launcher: launcher._kernel.__signature__)

    @property
    def _kernel(self) -> Launchable:
        return self._launch.__self__  # type: ignore[attr-defined, no-any-return]  # `launch` is a method of a kernel

    def __repr__(self) -> str:
        way = ".prepare" if self._launch == self._kernel._prepare else ""
        return f"{self._kernel!r}{way}{brackets_text(self._key)}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        entry = self._entries.get(self._exact) if self._entries else None
        try:
            return self._launch(self._exact, args, kwargs) if entry is None else entry[1](*args, **kwargs)
        except StagekitError as error:
            conceal(error)
            raise
        except Exception as error:
            expose(error)
            raise

    __call__.__stagekit_host__ = True  # type: ignore[attr-defined]  # as of `hide_frames`, which has a frame of its own


def _with_fitting_entry(begin: Callable[[Choice | None], T]) -> T:
    """Return what `begin` gives for the entry that fits the arguments. It chooses one itself where it is given None."""
    choice = None
    while True:
        try:
            return begin(choice)
        except OtherEntry as other:  # each knows less than the one before, and the last one runs anything
            choice = other.choice


class Preparation(Launcher):
    """`kernel.prepare`: it takes brackets and arguments as the kernel does, and gives a launch without parameters."""

    __slots__ = ()
    __iter__ = None
    __contains__ = None

    def __getitem__(self, key: Any) -> Launcher:
        return Launcher(self._launch, key)


class _AsWritten(str):
    """A postponed annotation, which `inspect` would show in quotes."""

    __slots__ = ()
    __repr__ = str.__str__


class SpecializeMethod:
    """Makes a method of a kernel its `specialize`, whose signature shows which constexprs are open. kernel: None in the class."""

    __slots__ = ("_function", "_kernel")
    __doc__ = OfEach(lambda method: method._function.__doc__, __doc__)
    __signature__ = OfEach(lambda method: method._kernel.specialize_signature)
    __name__ = OfEach(lambda method: method._function.__name__)

    def __init__(self, function: Callable[..., Any], kernel: Any = None) -> None:
        self._function = function
        self._kernel = kernel

    def __get__(self, kernel: Launchable | None, cls: type) -> Any:
        return self._function if kernel is None else SpecializeMethod(self._function, kernel)

    @hide_frames
    def specialize(self, /, **values: Any) -> Any:
        return self._function(self._kernel, **values)

    __call__ = specialize

    def __repr__(self) -> str:
        return f"{self._kernel!r}.{self.__name__}"


specializes = SpecializeMethod


class Launchable(ABC):
    """What all kinds of kernels share. name: what errors call it. function: the user's.

    Its properties show the variant that was used last, or the one for contiguous arrays of the annotated types; no GPU is needed.
    """

    __signature__ = OfEach(lambda kernel: kernel.call_signature)
    __iter__ = None  # brackets are no items: without these two, Python would launch-index a loop or an `in` without end
    __contains__ = None
    history: History
    __name__: str  # the function's, as all that it is known by

    def __init__(self, name: str, function: types.FunctionType) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self._native = NativeLaunchers(name, lambda key: Launcher(self._launch, key))
        if ranges.are_on():  # here, so that launches without ranges cost nothing more
            self._show_launches()

    def _show_launches(self) -> None:
        """Let each launch be an NVTX range: of the kernel's name, with another one inside where Python launches."""
        name, prepare = self.name, self._prepare
        shown: dict[str, Any] = {
            "_launch": ranges.in_range(f"{name}, launched by Python", self._launch),
            "_prepare": lambda *call: ranges.in_range(name, prepare(*call)),
        }
        for method, function in shown.items():
            function.__self__ = self  # as a method has
            setattr(self, method, function)
        self._native.surround = functools.partial(ranges.in_range, name)

    def __copy__(self) -> Self:
        """A kernel is copied as functions are: there is one."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    @property
    def __stagekit_fragment__(self) -> types.FunctionType:
        """A kernel called inside another kernel is a fragment."""
        return self.function

    @property
    @abstractmethod
    def __stagekit_fixed__(self) -> Mapping[str, Any]:
        """The constexprs that are fixed: a call inside another kernel cannot give them."""

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """The parameters of the user's function."""

    @abstractmethod
    def _named_target(self, switch: str) -> str:
        """Return where launches run whatever the arrays, empty if those decide. switch: what STAGEKIT_TARGET says."""

    @property
    def call_signature(self) -> inspect.Signature:
        """The parameters of a call: those of the user's function that are not fixed."""
        whole, fixed = inspect.signature(self.function), self.__stagekit_fixed__
        return whole.replace(parameters=[p for p in whole.parameters.values() if p.name not in fixed])

    @property
    def takes(self) -> str:
        """The parameters of a call as text, annotations as they are written."""
        shown = self.call_signature
        plain = [
            p.replace(annotation=_AsWritten(p.annotation)) if isinstance(p.annotation, str) else p
            for p in shown.parameters.values()
        ]
        return str(inspect.Signature(plain))

    @property
    def specialize_signature(self) -> inspect.Signature:
        """The keywords of `specialize`: constexprs, which default to what they are fixed to, and types of run-time parameters."""
        named, fixed = inspect.signature(self.function).parameters, self.__stagekit_fixed__
        keywords = [
            named[p.name].replace(kind=inspect.Parameter.KEYWORD_ONLY, default=fixed.get(p.name, named[p.name].default))
            for p in self.parameters.constexprs
        ]
        return inspect.Signature([*keywords, inspect.Parameter("types", inspect.Parameter.VAR_KEYWORD)])

    def summary(self) -> dict[str, str]:
        """Return what a notebook shows of the kernel. Nothing is traced or compiled for it."""
        code = self.function.__code__
        return {
            "takes": self.takes,
            "doc": inspect.getdoc(self.function) or "",
            "defined": f"{code.co_filename}:{code.co_firstlineno}",
        }

    def _repr_html_(self) -> str:
        return table(repr(self), self.summary())

    # -- launching ----------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """`k[grid]`, `k[grid, block]`, ...: what the brackets mean follows the kernel's style."""
        try:
            entry = self._native.entries.get(key)
            if entry is not None and entry[0] is key:  # the tuple of a program is mostly a constant of it
                return entry[1]
            return self._native.find(key) or Launcher(self._launch, key, self._native.entries)
        except Exception:  # brackets without a hash, or with one that raises
            return Launcher(self._launch, key)

    def __call__(self, /, *args: Any, **kwargs: Any) -> None:
        """Launch a kernel that computes its own grid (`device_entry`)."""
        launch = self._native.without_brackets
        try:
            if launch is None:
                self._launch(None, args, kwargs)
            else:
                launch(*args, **kwargs)
        except StagekitError as error:
            conceal(error)
            raise

    @property
    def prepare(self) -> Preparation:
        """`k.prepare[grid](x, n)` reads and checks the arguments once and gives a function without parameters that launches.

        It keeps the arguments alive and launches on what their addresses and sizes are now, on the stream that is current at
        the time: inside a CUDA graph capture too. A kernel that computes its own grid takes no brackets: `k.prepare(x, n)`.
        """
        return Preparation(self._prepare, None)

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Launch without native code. key: what stands in the brackets, None without brackets."""
        specialization, values, target = self._resolve(args, kwargs)

        def launch(choice: Choice | None) -> tuple[Variant, Kernel]:
            variant, kernel = specialization.kernel_for(key, values, target, choice)
            kernel.launch(variant.leaves(values), kernel.request(key))
            return variant, kernel

        self._offer(key, specialization, *_with_fitting_entry(launch))

    def _prepare(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PreparedLaunch:
        """Return a launch without parameters."""
        provide_support()
        specialization, values, target = self._resolve(args, kwargs)

        def prepare(choice: Choice | None) -> PreparedLaunch:
            variant, kernel = specialization.kernel_for(key, values, target, choice)
            leaves = variant.leaves(values)
            return kernel.prepare(leaves, kernel.request(key), lambda other: prepare(other)())

        return _with_fitting_entry(prepare)

    @abstractmethod
    def _resolve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Resolved:
        """Find out what a call means."""

    def _offer(self, key: Any, specialization: Specialized, variant: Variant, kernel: Kernel) -> None:
        """After a launch, have native code for the next one, which here does not check what was captured."""
        shape = functools.partial(specialization.call_shape, variant)
        self._native.offer(key, kernel, shape, member=variant.member(kernel))

    # -- inspection ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _shown(self, target: str = "cuda", choice: Choice | None = None) -> Variant:
        """Return the variant that the properties show: of the last call's types and entry, or the entry of `choice`."""

    @hide_frames
    def explain(self) -> str:
        """Say why the last call, or the last property that was looked at, compiled: one line per step."""
        return self.history.text()

    def trace(self) -> Traced:
        """Return the traced kernel of the variant that the properties show."""
        return self._shown("interp").traced

    @hide_frames
    def compile(
        self, target: str = "cuda", *, capability: int | None = None, block: int | tuple[int, ...] | None = None
    ) -> Artifact:
        """Compile for "cuda" or "cpu" without launching.

        capability: cuda, ten times the version, such as 90. block: cpu, where the kernel does not fix it.
        """
        axes = check_compile(target, capability, block)
        chosen = capability or capability_at_hand()
        return self._shown(trace_target(target, chosen)).artifact(target, chosen, axes)

    @property
    @hide_frames
    def ir(self) -> str:
        """The traced IR as text."""
        return Listing(self.trace().ir)

    @property
    @hide_frames
    def llvm(self) -> str:
        """LLVM IR for the GPU, before optimisation."""
        return Listing(self.compile("cuda").stages["llvm"])

    @property
    @hide_frames
    def ptx(self) -> str:
        """PTX for the GPU that is present, else for compute capability 9.0."""
        return Listing(self.compile("cuda").stages["ptx"])

    @property
    @hide_frames
    def sass(self) -> str:
        """Machine code of the GPU as text; needs ptxas and a disassembler (the extra `cuda`).

        Beside it stands how long registers live; of a kernel with `lineinfo=True` the lines of the source instead.
        """
        with importing:
            from stagekit.backends import ptxas

        return Listing(ptxas.disassemble(ptxas.assemble(self.ptx).cubin))

    @property
    @hide_frames
    def signature(self) -> Signature:
        """What a launch accepts."""
        return self._shown().traced.signature

    @property
    @hide_frames
    def launch(self) -> Any:
        """The launch that the kernel computes itself (`LaunchSpec`), or None."""
        return self._shown().traced.launch

    @property
    @hide_frames
    def fixed_block(self) -> tuple[int, int, int] | None:
        """Threads per block along x, y and z where the kernel fixes them, else None."""
        return self._shown().traced.block

    @property
    @hide_frames
    def style(self) -> Style:
        """What stands in the brackets: "block", "thread" or "entry"."""
        return self._shown().traced.style

    @hide_frames
    def report(self) -> CompileReport:
        """Return registers, spills, shared memory and instruction counts, from ptxas, and what the text of the kernel costs.

        That are lines where a variable widened, lines that compute in float64, barriers that the order of a block-level kernel's
        statements needs, which launches this entry is for, if the kernel has several, and which thread holds what of the tiles
        that its variables hold in the end.
        """
        with importing:
            from stagekit.backends.ptxas import report

        return report(self.ptx, self._shown().notes())

    def view(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one HTML page with the source, IR, LLVM, PTX and SASS side by side, and return its path.

        path: left out, the kernel's name in the current folder. The line under the pointer is marked in every pane.
        """
        with importing:
            from stagekit.viewing import write_page

        if not (path is None or isinstance(path, str | os.PathLike)):
            raise wrong_arguments(Launchable.view, f"`path` is {shown(path)}, not the path of a file")
        variant = self._shown(trace_target("cuda", capability_at_hand()))
        to = Path(f"{self.__name__}.html" if path is None else path)
        return write_page(to, self.name, self.function, variant.traced, variant.with_lines(), variant.notes())

    view = hide_frames(view, OSError)  # of a place that cannot be written


class ForwardingKernel(Launchable):
    """A kernel that launches another one in its own way. Everything else is that of the other."""

    def __init__(self, kernel: Launchable) -> None:
        super().__init__(kernel.name, kernel.function)
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        if name == "_kernel":  # of an object that was not initialised
            raise AttributeError(name)
        return getattr(self._kernel, name)

    @property
    def __stagekit_fixed__(self) -> Mapping[str, Any]:
        return self._kernel.__stagekit_fixed__

    @property
    def parameters(self) -> Parameters:
        return self._kernel.parameters

    def _named_target(self, switch: str) -> str:
        return self._kernel._named_target(switch)

    def summary(self) -> dict[str, str]:
        return self._kernel.summary()

    def _resolve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Resolved:
        return self._kernel._resolve(args, kwargs)

    def _shown(self, target: str = "cuda", choice: Choice | None = None) -> Variant:
        return self._kernel._shown(target, choice)
