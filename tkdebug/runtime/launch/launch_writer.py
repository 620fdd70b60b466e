"""Writes the functions of a native launch, the only code of tkdebug that is made at run time.

Each is composed of fragments: `launch` of a jit function binds the arguments, works out their key,
finds the compiled kernel, submits and records; `run` of a compiled kernel, which torch's compiler
calls, submits and records; `note` of a compiled kernel packs the record of a launch; the text of
its `submit` is the platform's. In plain Python a recorded launch took 7 us more on an H200's host,
a seventh of a compiled model's step. `inspect.Signature.bind` alone costs more than a bare launch
may.

In the pieces of text here `@` begins the names that no parameter has; `PREFIX` replaces it in the
end. Invariant: the key differs wherever `specialize.argument_spec` or `alignment.alignment_key`
does, as equal keys share a kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol

from tkdebug.compiler.dtypes import pointer_type
from tkdebug.compiler.tensor import constexpr
from tkdebug.knobs import KNOBS
from tkdebug.records.events import next_launch_id
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES
from tkdebug.runtime.arguments.specialize import (
    ALIGNMENT,
    INT32_MAX,
    INT32_MIN,
    aligned_descriptor,
    constant_key,
)
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.device.modes import MAIN_THREAD, OWN_MODE, NextAction
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.jit.parameters import KernelParam, refuse_keyword_variadic
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT, NOWHERE, plain
from tkdebug.runtime.launch.requests import GRID_LIMITS

if TYPE_CHECKING:
    from tkdebug.records.hook_chain import NoteParts
    from tkdebug.runtime.jit.function_source import KernelFunction
    from tkdebug.runtime.launch.native_kernel import NativeKernel

LaunchFunction = Callable[..., Any]
PREFIX = "_tk_"


class Marker:
    """A value that no argument can have."""

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
        label: the name that tracebacks show in place of a file.
        text: the function's source.
        scope: the names that the text may use.
    """
    exec(compile(text, f"<{label}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function


class SlowPath(Protocol):
    """The functions that a generated launch function calls where it cannot go on alone."""

    def unusual(
        self, position: int, value: Any, device: int, grid: Any
    ) -> tuple[Hashable, Hashable, Any]:
        """Return key, alignment and passed value of an argument that the text has no branch for."""


def write_launch(
    path: SlowPath,
    fn: KernelFunction,
    kernels: Mapping[Any, object],
    first_values: Sequence[Any],
) -> LaunchFunction:
    """Write `launch(grid, *arguments, **options)` of a jit function.

    Args:
        path: the functions that it calls where it cannot go on alone.
        fn: the jit function.
        kernels: its compiled kernels by launch key, which are added to.
        first_values: the values of the first launch, whose kinds are tested first.
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
        "find": kernels.get,
        "path": path,
        "unusual": path.unusual,
        "constant_key": constant_key,
        "constexpr": constexpr,
        "knobs": KNOBS,
        "own_mode": OWN_MODE.get,
        "main": MAIN_THREAD,
        # The modes in which a launch is native here.
        "native_modes": _native_modes(),
        "MISSING": MISSING,
        # A kernel with *args takes whatever is given by position.
        "surplus": (),
        "WARMUP": WARMUP,
        "LOOK": NextAction.LOOK,
        **{f"default_{p.num}": p.default if p.has_default else MISSING for p in fn.params},
        **_submit_scope(),
    }
    text = launch_text(fn.params, first_values)
    launch = _written("launch", f"launch of {fn.__name__}", text, scope)
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
        params: the parameters of the jit function.
        first_values: the values of the first launch, whose kinds are tested first.
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
    return f"""\
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
    for @get, @name, @value in @kernel.guarded:
        if @get(@name) is not @value:
            @kernel = @path.renew(
                @kernel, @key, @dev, ({names}), @options, @grid)
            if @kernel is None: return None
            break
    @next_action = @kernel.next_action
    if @next_action is not None and @grid is not @WARMUP and @next_action() is @LOOK:
        return @path.launch_seen(@kernel, @grid, @stream(@dev), ({names}), ({passed}))
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
    @on = @stream(@dev)
{_SUBMIT.format(names=names, passed=passed)}\
    return @kernel
"""


def write_run(kernel: NativeKernel) -> Callable[..., None]:
    """Write the function that launches a kernel with all arguments by position.

    It takes the grid along x, y and z, the stream's handle, five arguments that upstream's launcher
    wants (function, packed metadata, launch metadata, hooks) and that are ignored, and a value for
    each parameter. A grid with an axis of 0 launches nothing.
    """
    import torch

    def address(position: int, value: Any) -> Any:
        if value.__class__ is int or value is None:
            return value
        name = kernel.src.fn.arg_names[position]
        return platform_in_force().accessible_address(kernel.name, name, value, kernel.device)

    params, specs = kernel.src.fn.params, kernel.src.specs
    names = "".join(f"a{p.num}, " for p in params)
    prepare = "".join(
        f"    @v{p.num} = {_run_value(p.num, isinstance(spec, pointer_type))}\n"
        for p, spec in zip(params, specs, strict=True)
        if not p.is_constexpr
    )
    passed = "".join(f"@v{p.num}, " for p in params if not p.is_constexpr)
    text = f"""\
def @run(@x, @y, @z, @on, @function, @packed, @metadata, @enter, @exit, {names}):
    if @x <= 0 or @y <= 0 or @z <= 0: return
{prepare}\
    if @kernel.checked_by is not None and @kernel.checked_by.takes(
            (@x, @y, @z), @on, ({names}), ({passed})):
        return
{_SUBMIT.format(names=names, passed=passed)}"""
    scope = {
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "data_ptr": torch._C.TensorBase.data_ptr,  # noqa: SLF001  (as above)
        "address": address,
        "kernel": kernel,
        **_submit_scope(),
    }
    return _written("run", f"launch of {kernel.name}", text, scope)


def _run_value(position: int, is_pointer: bool) -> str:
    name = f"a{position}"
    if not is_pointer:
        return name
    is_tensor = f"{name}.__class__ is @Tensor or {name}.__class__ is @Parameter"
    return f"@data_ptr({name}) if {is_tensor} else @address({position}, {name})"


# `@x`, `@y`, `@z`, `@on`, the stream, and `@kernel` are known. What a recorded launch does is
# written out, as `NativeKernel.launch_recorded` has it: each call and tuple counts.
_SUBMIT = """\
    if not @hooks.launch: @kernel.submit(@x, @y, @z, @on, {passed})
    elif @hooks.packer is None:
        @kernel.launch_hooked((@x, @y, @z), @on, ({names}), ({passed}))
    else:
        @packer = @hooks.packer
        @note = @packer.notes.get(@kernel) or @packer.note_of(@kernel)
        @start_ns = @now()
        try: @ran = @kernel.submit(@x, @y, @z, @on, {passed})
        except BaseException as @error:
            @kernel.tell_failed(@error, (@x, @y, @z), @on, ({names}), @start_ns)
            raise
        @id = @next_launch_id()
        @note(@id, @x, @y, @z, @on, @start_ns, {names})
        if @in_flight.is_on:
            @frame = @caller(1)
            @code = @frame.f_code
            @at = @frame.f_lasti
            if not @is_scripts(@id_of(@code)): @code, @at = @place_from(@frame) or @nowhere
            @flight = (@ordinal(), @id, @ran or @kernel, @x, @y, @z, @on, @packer, @code, @at)
            @keep(@flight + (({passed}) if @kernel.passes_plain else @plain(({passed}))))
"""


def _submit_scope() -> dict[str, Any]:
    """Names in the text of `_SUBMIT`, with their values."""
    return {
        "hooks": HOOKS,
        "in_flight": IN_FLIGHT,
        "caller": sys._getframe,  # noqa: SLF001
        "id_of": id,
        "is_scripts": IN_FLIGHT.is_scripts,
        "place_from": IN_FLIGHT.place_from,
        "plain": plain,
        "nowhere": NOWHERE,
        "ordinal": IN_FLIGHT.ordinal,
        "keep": IN_FLIGHT.keep,
        "now": time_ns,
        "next_launch_id": next_launch_id,
    }


_NOTE = """\
def @note(@launch, @x, @y, @z, @stream, @start_ns, {names}):
    @end_ns = @now()
    try:
        @key = ({key})
        @facts = @kept(@key)
        if @facts is None: @facts = @describe(@key, ({names}))
        @slot = @pack(@variant, @facts, @launch, @x, @y, @z, @here.native_id, @stream, @start_ns,
            @end_ns, 0 if @named.is_plain else @scopes_now(), @flags[0], {scalars})
    except Exception:
        @odd(@launch, (@x, @y, @z), @stream, @start_ns, @end_ns, ({names}))
    else: @put(@slot)
"""


def write_note(parts: NoteParts) -> Callable[..., None]:
    """Write the function that packs the record of each launch of a kernel."""
    kinds, packed = parts.kinds, parts.packed
    names = [f"p{place}" for place in range(len(kinds))]
    if "other" in kinds:
        # A tuple or descriptor: it takes more than a short look, and a key is held on to.
        key = f"@infos(({''.join(f'{name}, ' for name in names)})),"
    else:
        key = "".join(
            f"{name}.shape, {name}.stride(), "
            if kind == "tensor"
            else f"{name}.__class__, {name}, "
            for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
            if kind != "fixed" and place not in packed
        )
    text = _NOTE.format(
        names="".join(f"{name}, " for name in names),
        key=key,
        scalars="".join(f"p{place}, " for place in packed),
    )
    scope = {**parts._asdict(), "now": time_ns, "named": SCOPES}
    return _written("note", "launch that is noted", text, scope)


def _written(name: str, label: str, text: str, scope: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile a function whose text and scope have `@` for `PREFIX`."""
    names = {f"{PREFIX}{each}": value for each, value in scope.items()}
    return write_function(f"{PREFIX}{name}", label, text.replace("@", PREFIX), names)


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
    """Return statements that set key k, alignment s and passed value v of a run-time argument."""
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
    """Return condition and statements for each kind of value that the text handles itself."""
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
