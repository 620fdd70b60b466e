"""`@jit`: a Python function as a kernel that compiles for the arguments of its launches.

Responsible for the decorator, and for finding or making the compiled kernel of a launch. Invariant:
nothing of the source is looked at before the first launch, so that decorating never fails for want
of source.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

from tkdebug.compiler.frontend.scope import UsedGlobal
from tkdebug.compiler.tensor import is_jit_function, unwrap
from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.binder import Bound, explain_binding, make_binder, spec_of
from tkdebug.runtime.arguments.specialize import alignment_key, constant_key
from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor
from tkdebug.runtime.compile.options import OPTION_NAMES, parse_options, without_amd_options
from tkdebug.runtime.compile.parallel_compilation import PARALLEL_COMPILATION, CompileOnce
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.device.modes import current_mode, mode
from tkdebug.runtime.errors import ArgumentOverflowError, GlobalChangedError, OutsideKernelError
from tkdebug.runtime.jit.function_source import KernelFunction
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
from tkdebug.runtime.launch.first_launch import (
    load_interpreter,
    load_what_launches_import,
    prestart,
)
from tkdebug.runtime.launch.interpreted_kernel import compile_kernel
from tkdebug.runtime.launch.requests import grid_dimensions, requested
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS, Compile
from tkdebug.runtime.watched_values import forget_with_watches, is_looked_at, watching

if TYPE_CHECKING:
    from tkdebug.runtime.checked.checked_kernel import CheckedKernels
    from tkdebug.runtime.launch.native_launch import NativePath

Key = tuple[Hashable, ...]
PreRunHook = Callable[..., object]


class DeviceCaches(Mapping[int, tuple[dict[Key, CompiledKernel]]]):
    """The compiled kernels under the number of each device: all the same ones.

    A native launch has its device in the key; under interpret kernels do not depend on it.
    """

    def __init__(self, kernels: dict[Key, CompiledKernel]) -> None:
        self._by_key = kernels

    def __getitem__(self, device: int) -> tuple[dict[Key, CompiledKernel]]:
        return (self._by_key,)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        import torch  # here, as `import tkdebug` is quick without it

        return max(1, torch.cuda.device_count())

    def clear(self) -> None:
        """Forget all compiled kernels."""
        self._by_key.clear()


class KernelInterface:
    """Something that is launched with a grid."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on `grid`, or only compile when `warmup`."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """`kernel[grid]`: a function that launches on `grid`."""
        return partial(self.run, grid=grid, warmup=False)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile for these arguments without launching; a torch dtype represents a tensor."""
        wrapped = [MockTensor.wrap_dtype(argument) for argument in args]
        named = {name: MockTensor.wrap_dtype(argument) for name, argument in kwargs.items()}
        return self.run(*wrapped, grid=grid, warmup=True, **named)

    @property
    def interpret(self) -> Interpreted:
        """`kernel.interpret[grid](…)`: launch interpreted, whatever the mode."""
        return Interpreted(self)


class Interpreted(KernelInterface):
    """A kernel whose launches are interpreted."""

    def __init__(self, kernel: KernelInterface) -> None:
        self.kernel = kernel

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch or warm up under interpret."""
        with mode("interpret"):
            return self.kernel.run(*args, grid=grid, warmup=warmup, **kwargs)


class JITFunction(KernelFunction, KernelInterface):
    """A kernel, or a function that kernels call.

    Attributes:
        pre_run_hooks: called with each launch's arguments before it.
        kernels: compiled kernels by launch key.
    """

    def __init__(
        self,
        fn: FunctionType,
        version: object = None,
        do_not_specialize: Collection[int | str] | None = None,
        do_not_specialize_on_alignment: Collection[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[Specialization], str] | None = None,
        launch_metadata: Callable[..., dict[str, object]] | None = None,
    ) -> None:
        if not isinstance(fn, FunctionType):
            raise UsageError(
                f"jit: got {fn!r}, expected a Python function; put the decorator above a `def`"
            )
        _watch_addresses()
        prestart()
        super().__init__(
            fn, do_not_specialize, do_not_specialize_on_alignment, noinline, repr, launch_metadata
        )
        self.version = version
        self.debug = debug
        self.pre_run_hooks: list[PreRunHook] = []
        self._binder: Callable[[tuple[Any, ...], Mapping[str, Any]], Bound] | None = None
        self.kernels: dict[Key, CompiledKernel] = {}
        self._compiles = CompileOnce(self.kernels)
        self._native_path: NativePath | None = None
        # The same, where a launch may take it without a look at anything else.
        self._native: NativePath | None = None
        forget_with_watches(self)

    def run(
        self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any
    ) -> CompiledKernel | None:
        """Launch on `grid`; with `warmup` only compile.

        Args:
            args: the kernel's arguments.
            grid: one to three ints, or a function that returns these for the arguments by name.
            warmup: compile, and launch nothing.
            kwargs: arguments by name, and launch options.

        Returns:
            The compiled kernel; None when a `jit_cache_hook` takes the compile upon itself.

        Raises:
            LaunchError: arguments, options or grid are wrong.
            CompileError: the kernel does not compile.
        """
        native = self._native
        if native is not None and not warmup and not self.pre_run_hooks:
            # It looks at the mode itself.
            kernel: CompiledKernel | None = native.launch(grid, *args, **kwargs)
            return kernel
        return self.run_in_mode(args, grid, warmup, kwargs)

    def run_in_mode(
        self, args: tuple[Any, ...], grid: Any, warmup: bool, kwargs: dict[str, Any]
    ) -> CompiledKernel | None:
        """Run as `run` does, in whatever mode is in force."""
        load_what_launches_import()
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        if current_mode(self.__name__) == "native":
            return self._run_native(args, grid, warmup, kwargs)
        return self._run_interpreted(args, grid, warmup, kwargs)

    def _run_interpreted(
        self, args: tuple[Any, ...], grid: Any, warmup: bool, kwargs: dict[str, Any]
    ) -> CompiledKernel | None:
        load_interpreter()
        values, types, options = self._bind(args, kwargs)
        key: Key = (types, tuple(options.items()), KNOBS.debug)
        try:
            kernel = self.kernels.get(key)
        except TypeError:
            # An option that has no hash, such as a dict of libraries.
            key = (types, constant_key(options), KNOBS.debug)
            kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self._compile(key, values, options, kwargs, warmup)
            if kernel is None:
                return None
        for get, name, value in kernel.guarded:
            if get(name) is not value and self.forget_if_stale(kernel, key):
                kernel = self._compile(key, values, options, kwargs, warmup)
                break
        if warmup or kernel is None:
            return kernel
        asked_grid = grid
        if callable(grid):
            grid = grid(dict(zip(self.arg_names, map(unwrap, values), strict=True)))
        dimensions = grid_dimensions(self.__name__, grid)
        if 0 not in dimensions:
            if HOOKS.debugger is None:
                kernel.launch(dimensions, values)
            else:
                with requested(self, args, kwargs, asked_grid):
                    kernel.launch(dimensions, values)
        elif KNOBS.checks:
            kernel.launch_nothing(dimensions, values)
        return kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """`kernel[grid]`: a function that launches on `grid`."""
        native = self._native
        if native is None or self.pre_run_hooks:
            return partial(self.run, grid=grid, warmup=False)
        # The short way: it looks at the mode itself.
        return partial(native.launch, grid)

    def _run_native(
        self, args: tuple[Any, ...], grid: Any, warmup: bool, kwargs: dict[str, Any]
    ) -> CompiledKernel | None:
        from tkdebug.runtime.launch.launch_writer import WARMUP
        from tkdebug.runtime.launch.native_launch import DOUBLED, NativePath

        native = self._native_path
        if native is None:
            native = self._native_path = NativePath(self, args)
            # A parameter named like an option asks for what only this method sees, and so does
            # a class that has its own way to run.
            if OPTION_NAMES.isdisjoint(self.arg_names) and type(self).run is JITFunction.run:
                self._native = native
        doubled = OPTION_NAMES & kwargs.keys() & set(self.arg_names)
        if doubled:
            kwargs = {**kwargs, DOUBLED: tuple((name, kwargs[name]) for name in sorted(doubled))}
        kernel: CompiledKernel | None = native.launch(WARMUP if warmup else grid, *args, **kwargs)
        return kernel

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        binder = self._binder
        if binder is None:
            binder = self._binder = make_binder(self.__name__, self.signature, self.params)
        try:
            return binder(args, kwargs)
        except (TypeError, ArgumentOverflowError) as error:
            failure = error
        self.explain(args, kwargs)
        raise failure

    def _compile(
        self,
        key: Key,
        values: tuple[Any, ...],
        options: dict[str, Any],
        kwargs: dict[str, Any],
        is_warmup: bool,
    ) -> CompiledKernel | None:
        # A parameter named like an option (`num_warps: tl.constexpr`) sets both.
        doubled = {name: kwargs[name] for name in OPTION_NAMES & kwargs.keys()}
        src = self._specialization(values, {**options, **doubled}, None)
        compile = self._asked_about(compile_kernel, values)
        return self._compiles.kernel(key, src, is_warmup, compile)

    def compile_native(
        self,
        key: Key,
        device: int,
        values: tuple[Any, ...],
        options: dict[str, Any],
        is_warmup: bool,
    ) -> CompiledKernel | None:
        """The native kernel for these arguments on CUDA device `device`, compiled when it is new.

        Args:
            key: the launch key.
            device: the index of the device; without one, the index of the default target.
            values: a value for each parameter.
            options: the launch options given.
            is_warmup: whether nothing is launched.

        Returns:
            None when a `jit_cache_hook` takes the compile upon itself, and when it is only begun
            because several are compiled ahead.

        Raises:
            CompileError: the kernel does not compile.
        """
        from tkdebug.runtime.compile.native_compilation import NativeCompilation

        src = self._specialization(values, options, alignment_key(self.params, values))
        ahead = PARALLEL_COMPILATION.get()
        if ahead is not None and ahead.begins(self, key, src, device):
            return None

        def compile(src: Specialization) -> CompiledKernel:
            begun = None if ahead is None else ahead.take(self, key)
            if KNOBS.checks:
                from tkdebug.runtime.checked.builds import tell_of_others

                tell_of_others()
            is_watched = KNOBS.timelines or (is_looked_at() and watching(self))
            if KNOBS.check_launches == "none" and not is_watched:
                return (begun or NativeCompilation(src, device)).finish()
            launched = None if is_warmup else values
            return self._checked_kernels.make(key, src, device, begun, launched)

        return self._compiles.kernel(key, src, is_warmup, self._asked_about(compile, values))

    def _asked_about(self, compile: Compile, values: tuple[Any, ...]) -> Compile:
        """Return `compile`, which asks another compiler about the kernel, too, if one is given."""
        asker = COMPILE_HOOKS.asker
        if asker is None:
            return compile
        return asker.around(compile, alignment_key(self.params, values))

    def _specialization(
        self,
        values: tuple[Any, ...],
        options: dict[str, Any],
        alignment: tuple[Hashable, ...] | None,
    ) -> Specialization:
        debug = bool(self.debug or KNOBS.debug)
        given = without_amd_options(options) if alignment is None else options
        parsed = parse_options(self.__name__, given, self.arg_names, debug)
        specs = tuple(
            spec_of(self.__name__, parameter, value)
            for parameter, value in zip(self.params, values, strict=True)
        )
        checks = watching(self) if alignment is None and is_looked_at() else None
        return Specialization(self, specs, parsed, alignment, checks=checks)

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the error that says why arguments do not fit the kernel's signature.

        Raises:
            ArgumentTypeError: they do not fit.
            ArgumentOverflowError: an int has more than 64 bits.
        """
        explain_binding(self.__name__, self.signature, self.params, args, kwargs)

    def forget_if_stale(self, kernel: CompiledKernel, key: Key) -> bool:
        """Whether a global's change calls for another compile; `kernel` is forgotten then.

        Raises:
            GlobalChangedError: a global has another value now.
        """
        for used in kernel.used_globals:
            if used.namespace.get(used.name) is not used.value and self._is_stale(used):
                self.kernels.pop(key, None)
                self.hash = None
                return True
        return False

    @cached_property
    def _checked_kernels(self) -> CheckedKernels:
        # Only where launches are checked.
        from tkdebug.runtime.checked.checked_kernel import CheckedKernels

        return CheckedKernels(self.kernels)

    @property
    def device_caches(self) -> DeviceCaches:
        """Compiled kernels as upstream keeps them: `device_caches[device][0]`, by launch key."""
        return DeviceCaches(self.kernels)

    def _is_stale(self, used: UsedGlobal) -> bool:
        """Whether a rebound global calls for another compile, or raise GlobalChangedError."""
        if not used.changed:
            return False
        now = used.namespace.get(used.name, "<deleted>")
        if is_jit_function(used.value) and is_jit_function(now):
            return True
        raise GlobalChangedError(
            f"kernel {self.__name__}: global variable `{used.name}` has changed since the "
            f"kernel was compiled, from {used.value!r} to {now!r}; "
            "pass it as a tl.constexpr parameter instead"
        )

    def add_pre_run_hook(self, hook: PreRunHook) -> None:
        """Call `hook` with the arguments of every launch, before it."""
        if not callable(hook):
            raise UsageError(f"add_pre_run_hook: got {hook!r}, expected a function")
        self.pre_run_hooks.append(hook)

    def _unsafe_update_src(self, new_src: str) -> None:
        """Compile `new_src` from now on; callers must forget their own `hash` themselves."""
        super()._unsafe_update_src(new_src)
        self.kernels.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: kernels are launched, and device functions called inside kernels.

        Raises:
            OutsideKernelError: always.
        """
        raise OutsideKernelError(
            f"Cannot call @triton.jit'd outside of the scope of a kernel: "
            f"launch it with {self.__name__}[grid](…)"
        )

    def __repr__(self) -> str:
        return f"JITFunction({self.__module__}:{self.__qualname__})"


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...


@overload
def jit(
    *,
    version: object = None,
    repr: Callable[[Specialization], str] | None = None,
    launch_metadata: Callable[..., dict[str, object]] | None = None,
    do_not_specialize: Collection[int | str] | None = None,
    do_not_specialize_on_alignment: Collection[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> Callable[[Callable[..., Any]], JITFunction]: ...


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    version: object = None,
    repr: Callable[[Specialization], str] | None = None,
    launch_metadata: Callable[..., dict[str, object]] | None = None,
    do_not_specialize: Collection[int | str] | None = None,
    do_not_specialize_on_alignment: Collection[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Decorator: make a Python function a kernel, or a function that kernels call.

    Args:
        fn: the function, if the decorator has no parentheses.
        version: anything; kept for the script.
        repr: gives the kernel's name for a specialisation.
        launch_metadata: gives launch hooks more facts, from (grid, metadata, arguments).
        do_not_specialize: parameters, by name or position, whose ints stay run-time values.
        do_not_specialize_on_alignment: parameters whose alignment is not noted.
        debug: compile device_assert and overflow checks in.
        noinline: keep it a function of its own in generated code.
    """

    def decorate(function: Any) -> JITFunction:
        return JITFunction(
            function,
            version=version,
            do_not_specialize=do_not_specialize,
            do_not_specialize_on_alignment=do_not_specialize_on_alignment,
            debug=debug,
            noinline=noinline,
            repr=repr,
            launch_metadata=launch_metadata,
        )

    return decorate if fn is None else decorate(fn)


def _watch_addresses() -> None:
    # Scripts that hand kernels addresses in memory read them before the first launch; one that
    # has not imported torch yet has no tensor.
    if "torch" in sys.modules:
        _watch_once()


@lru_cache(maxsize=1)
def _watch_once() -> None:
    from tkdebug.interpreter.memory.address_registry import watch_addresses

    watch_addresses()
