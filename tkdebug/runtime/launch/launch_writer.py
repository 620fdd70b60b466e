"""Writes the functions of a native launch, the only code of ours that is made while a script runs.

`launch` of a jit function binds a launch's arguments, works out their key and finds the compiled
kernel; `submit` of a compiled kernel, whose text is the platform's, packs them. What a launch does
besides is plain Python. `inspect.Signature.bind` alone costs more than a bare launch may, so
binding is the generated function's own call.

In the pieces of text here `@` begins the names that no parameter has; `PREFIX` takes its place in
the end. Invariant: the key differs wherever `specialize.argument_spec` and
`alignment.alignment_key` tell apart, as equal keys share a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.tensor import constexpr
from tkdebug.hook_chain import HOOKS
from tkdebug.knobs import KNOBS
from tkdebug.runtime.arguments.alignment import aligned_descriptor
from tkdebug.runtime.arguments.specialize import ALIGNMENT, INT32_MAX, INT32_MIN, constant_key
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.device.modes import MAIN_THREAD, OWN_MODE
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.jit.parameters import KernelParam, refuse_keyword_variadic
from tkdebug.runtime.launch.grid import GRID_LIMITS
from tkdebug.runtime.probes.watched_kernel import WatchedKernel

if TYPE_CHECKING:
    from tkdebug.runtime.jit.function import JITFunction
    from tkdebug.runtime.launch.native_launch import NativePath

LaunchFunction = Callable[..., Any]
PREFIX = "_tk_"


class Marker:
    """A value that no argument can be."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


# The generated function's value for an argument that was not given.
MISSING = Marker("<missing>")
# The grid of a launch that only compiles.
WARMUP = Marker("<warm-up>")


def write_function(name: str, label: str, text: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """Compile a function.

    Args:
        name: the function's, in `text`.
        label: what tracebacks show in the place of a file.
        text: its source.
        scope: what the text may name.
    """
    exec(compile(text, f"<{label}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function


def write_launch(path: NativePath, fn: JITFunction, first_values: Sequence[Any]) -> LaunchFunction:
    """Write `launch(grid, *arguments, **options)` of a jit function.

    Args:
        path: what the function calls where it cannot go on alone.
        fn: the jit function.
        first_values: what the first launch passes: its kinds are looked for first.
    """
    import torch

    refuse_keyword_variadic(fn.__name__, fn.signature)
    device, stream = _getters()
    scope: dict[str, Any] = {
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "Descriptor": TensorDescriptor,
        "aligned_descriptor": aligned_descriptor,
        # Not through the class, on which the interpreter may have put a method that takes notes.
        "data_ptr": torch._C.TensorBase.data_ptr,  # noqa: SLF001
        "device": device,
        "stream": stream,
        "Watched": WatchedKernel,
        "find": fn.kernels.get,
        "path": path,
        "unusual": path.unusual,
        "constant_key": constant_key,
        "constexpr": constexpr,
        "knobs": KNOBS,
        "hooks": HOOKS,
        "own_mode": OWN_MODE.get,
        "main": MAIN_THREAD,
        # The modes in which a launch is native here.
        "native_modes": _native_modes(),
        "MISSING": MISSING,
        # A kernel with *args takes whatever is given by position.
        "surplus": (),
        "WARMUP": WARMUP,
        **{f"default_{p.num}": p.default if p.has_default else MISSING for p in fn.params},
    }
    launch = write_function(
        f"{PREFIX}launch",
        f"launch of {fn.__name__}",
        launch_text(fn.params, first_values),
        {f"{PREFIX}{name}": value for name, value in scope.items()},
    )
    launch.__name__ = fn.__name__
    launch.__qualname__ = fn.__qualname__
    return launch


def _native_modes() -> tuple[str, ...]:
    return ("native", "auto") if platform_in_force().obstacle() is None else ("native",)


def _getters() -> tuple[Callable[[], int], Callable[[int], int]]:
    """Functions for the current device and for a device's current stream."""
    return platform_in_force().getters()


def launch_text(params: Sequence[KernelParam], first_values: Sequence[Any]) -> str:
    """The source of `launch` for these parameters.

    Args:
        params: of the jit function.
        first_values: what the first launch passes: its kinds are looked for first.
    """
    names = "".join(f"{parameter.name}, " for parameter in params)
    by_name = ", ".join(f"{p.name!r}: {_grid_value(p)}" for p in params)
    passed = "".join(f"@v{p.num}, " for p in params if not p.is_constexpr)
    # A variadic parameter takes several of them, and is none that is looked for first.
    given = first_values[: next((p.num for p in params if p.is_variadic), len(params))]
    hints = [*given, *[None] * (len(params) - len(given))]
    prepare = "".join(
        _prepare_text(p, hint) for p, hint in zip(params, hints, strict=True) if not p.is_constexpr
    )
    keys = "".join(_key_text(parameter) for parameter in params)
    text = f"""\
def @launch(@grid, {_declare(params)}**@options):
    if @knobs.interpret_kernels or (
            @own_mode() or @main.mode or @knobs.mode) not in @native_modes:
        if not @path.is_native():
            return @path.elsewhere(@grid, ({names}), @surplus, @options)
    @dev = @device()
{prepare}\
    @key = (
        @dev, @knobs.debug, tuple(@options.items()) if @options else (), {keys})
    try:
        @kernel = @find(@key)
    except TypeError:
        @kernel = None
    if @kernel is None or @surplus:
        @kernel = @path.compile(
            @key, @dev, ({names}), @surplus, @options, @grid)
        if @kernel is None: return None
    for @get, @name, @value in @kernel.watched:
        if @get(@name) is not @value:
            @kernel = @path.renew(
                @kernel, @key, @dev, ({names}), @options, @grid)
            if @kernel is None: return None
            if @kernel.__class__ is @Watched and @grid is not @WARMUP:
                return @path.launch_seen(@kernel, @grid, @stream(@dev), ({names}), ({passed}))
            break
    if @grid.__class__ is not tuple:
        if @grid is @WARMUP: return @kernel
        if callable(@grid): @grid = @grid({{{by_name}}})
    if @grid.__class__ is not tuple: @x, @y, @z = @path.dimensions(@grid)
    elif len(@grid) == 1:
        @x, = @grid
        @y = @z = 1
    elif len(@grid) == 2:
        @x, @y = @grid
        @z = 1
    elif len(@grid) == 3: @x, @y, @z = @grid
    else: @path.dimensions(@grid)
    if not (@x.__class__ is @y.__class__ is @z.__class__ is int
            and 0 < @x <= {GRID_LIMITS[0]} and 0 < @y <= {GRID_LIMITS[1]}
            and 0 < @z <= {GRID_LIMITS[2]}):
        @x, @y, @z = @path.dimensions((@x, @y, @z))
        if not (@x and @y and @z): return @kernel
    if @hooks.launch:
        @kernel.launch_recorded((@x, @y, @z), @stream(@dev), ({names}), ({passed}))
    else:
        @kernel.submit(@x, @y, @z, @stream(@dev), {passed})
    return @kernel
"""
    return text.replace("@", PREFIX)


def _declare(params: Sequence[KernelParam]) -> str:
    declared = ""
    keyword_only = False
    for parameter in params:
        if parameter.is_variadic:
            keyword_only = True
            declared += f"*{parameter.name}, "
            continue
        if parameter.is_keyword_only and not keyword_only:
            keyword_only = True
            declared += "*@surplus, "
        declared += f"{parameter.name}=@default_{parameter.num}, "
    return declared if keyword_only else f"{declared}*@surplus, "


def _grid_value(parameter: KernelParam) -> str:
    name = parameter.name
    return f"{name}.value if {name}.__class__ is @constexpr else {name}"


def _key_text(parameter: KernelParam) -> str:
    name, num = parameter.name, parameter.num
    if parameter.is_constexpr:
        plain = f"{name}.__class__ is int or {name}.__class__ is str"
        return f"{name} if {plain} else @constant_key({name}), "
    return f"@k{num}, @s{num}, "


def _prepare_text(parameter: KernelParam, hint: Any) -> str:
    """Statements that set key k, alignment s and passed value v of one run-time argument."""
    branches = _branches(parameter)
    # The kind that the first launch has is looked for first.
    if isinstance(hint, int) and "int" in branches:
        branches = {"int": branches.pop("int"), **branches}
    elif isinstance(hint, TensorDescriptor) and parameter.declared_type is None:
        branches = {"descriptor": _descriptor_branch(parameter), **branches}
    num, name = parameter.num, parameter.name
    lines = []
    word = "if"
    for condition, statements in branches.values():
        lines.append(f"{word} {condition}:")
        lines += [f"    {statement}" for statement in statements]
        word = "elif"
    other = f"@unusual({num}, {name}, @dev, @grid)"
    lines += ["else:", f"    @k{num}, @s{num}, @v{num} = {other}"]
    return "".join(f"    {line}\n" for line in lines)


def _branches(parameter: KernelParam) -> dict[str, tuple[str, list[str]]]:
    """Condition and statements for each kind of value that the text deals with itself."""
    declared = parameter.declared_type
    branches = {}
    if declared is None or declared.is_ptr():
        branches["tensor"] = _tensor_branch(parameter)
    if declared is None or not declared.is_ptr():
        branches["int"] = _int_branch(parameter)
        branches["float"] = _float_branch(parameter)
    if declared is None:
        name, num = parameter.name, parameter.num
        branches["none"] = (f"{name} is None", [f"@k{num} = @s{num} = @v{num} = None"])
    return branches


def _tensor_branch(parameter: KernelParam) -> tuple[str, list[str]]:
    name, num = parameter.name, parameter.num
    kind = f"{name}.dtype" if parameter.declared_type is None else "'declared'"
    kinds = f"{name}.__class__ is @Tensor or {name}.__class__ is @Parameter"
    statements = [
        f"@v{num} = @data_ptr({name})",
        f"@k{num} = {kind}",
        f"@s{num} = {_alignment(parameter, f'@v{num}')}",
        f"if {name}.get_device() != @dev: @path.address({num}, {name}, @dev, @grid)",
    ]
    return kinds, statements


def _descriptor_branch(parameter: KernelParam) -> tuple[str, list[str]]:
    name, num = parameter.name, parameter.num
    base = f"@b{num}"
    condition = f"{name}.__class__ is @Descriptor and ({base} := {name}.base)"
    condition += ".__class__ is @Tensor"
    kind = f"('descriptor', {base}.dtype, tuple({name}.block_shape), {name}.padding, "
    kind += f"{name}.round_f32_to_tf32)"
    alignment = f"@aligned_descriptor({name})" if parameter.notes_alignment else "False"
    statements = [
        f"@v{num} = {name}",
        f"@k{num} = {kind}",
        f"@s{num} = {alignment}",
        f"if {base}.get_device() != @dev and @grid is not @WARMUP:",
        f"    @path.address({num}, {base}, @dev, @grid)",
    ]
    return condition, statements


def _int_branch(parameter: KernelParam) -> tuple[str, list[str]]:
    name, num = parameter.name, parameter.num
    if parameter.declared_type is not None:
        condition, kind = f"{name}.__class__ is int", "'declared'"
    else:
        condition = f"{name}.__class__ is int and {INT32_MIN} <= {name} <= {INT32_MAX}"
        kind = "'i32'" if parameter.do_not_specialize else f"'i32' if {name} != 1 else 1"
    statements = [
        f"@v{num} = {name}",
        f"@k{num} = {kind}",
        f"@s{num} = {_alignment(parameter, name)}",
    ]
    return condition, statements


def _float_branch(parameter: KernelParam) -> tuple[str, list[str]]:
    name, num = parameter.name, parameter.num
    kind = "'fp32'" if parameter.declared_type is None else "'declared'"
    statements = [f"@v{num} = {name}", f"@k{num} = {kind}", f"@s{num} = False"]
    return f"{name}.__class__ is float", statements


def _alignment(parameter: KernelParam, value: str) -> str:
    return f"not {value} & {ALIGNMENT - 1}" if parameter.notes_alignment else "False"
