"""The native way from `kernel[grid](…)` to the driver: one generated function per jit function.

`inspect.Signature.bind` alone costs more than a native launch may, so binding is the generated
function's own call; its body works out the key of the arguments (types, constants, alignment),
looks the compiled kernel up, and hands the arguments over. Each step that a launch does not need
is left out of the text. Whatever is rare (a first launch, an unusual argument, another mode) goes
through a call to `NativePath`.

Invariant: the key tells apart whatever `specialize.argument_spec` and `specialize.alignment_key`
tell apart, as equal keys share a kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.tensor import constexpr
from tkdebug.errors import LaunchError
from tkdebug.events import HOOKS
from tkdebug.knobs import KNOBS
from tkdebug.runtime.binder import spec_of
from tkdebug.runtime.cuda.device import obstacle
from tkdebug.runtime.driver import has_real_gpu
from tkdebug.runtime.grid import GRID_LIMITS, grid_dimensions
from tkdebug.runtime.modes import MAIN_THREAD, OWN_MODE, current_mode
from tkdebug.runtime.parameters import KernelParam, refuse_variadic
from tkdebug.runtime.specialize import (
    ALIGNMENT,
    INT32_MAX,
    INT32_MIN,
    accepts_declared,
    aligned,
    aligned_descriptor,
    constant_key,
    is_tensor_like,
    launch_key,
)
from tkdebug.runtime.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from tkdebug.runtime.compiled import CompiledKernel
    from tkdebug.runtime.jit import JITFunction

Key = tuple[Hashable, ...]
# Names inside the generated function that no parameter has.
_P = "_tk_"
DOUBLED = f"{_P}doubled"


class _Marker:
    """A value that no argument can be."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


# Stands in the generated function for an argument that was not given.
MISSING = _Marker("<missing>")
# Stands for the grid of a launch that only compiles.
WARMUP = _Marker("<warm-up>")


class NativePath:
    """What the generated function of one jit function calls where it cannot go on alone.

    Attributes:
        launch: the generated function: `launch(grid, *arguments, **options)`.
    """

    def __init__(self, fn: JITFunction, first_values: Sequence[Any] = ()) -> None:
        self._fn = fn
        self.launch = _make_launch(self, fn, first_values)

    def is_native(self) -> bool:
        """Whether a launch made here and now is native."""
        return current_mode(self._fn.__name__) == "native"

    def unusual(
        self, position: int, value: Any, device: int, grid: Any
    ) -> tuple[Hashable, Hashable, Any]:
        """Key, alignment and passed value of an argument that the text has no branch for."""
        if value is MISSING:
            # No compiled kernel has such a key, and `compile` explains.
            return MISSING, None, None
        parameter = self._fn.params[position]
        declared = parameter.declared_type
        if declared is not None and accepts_declared(declared, value):
            kind: Hashable = "declared"
        else:
            try:
                kind = launch_key(value, not parameter.do_not_specialize)
            except LaunchError:
                # Raises too, and names the argument.
                spec_of(self._fn.__name__, parameter, value)
                raise
        alignment = parameter.notes_alignment and aligned(value)
        if is_tensor_like(value) and not isinstance(value, TensorDescriptor):
            return kind, alignment, self.address(position, value, device, grid)
        if grid is not WARMUP:
            self._check_inside(position, value, device)
        return kind, alignment, value

    def address(self, position: int, value: Any, device: int, grid: Any) -> int:
        """Address of a tensor that is not known to be on `device`.

        Raises:
            PointerError: kernels there cannot access it.
            NoDeviceError: there is no GPU.
        """
        if grid is WARMUP:
            return int(value.data_ptr())
        from tkdebug.runtime.cuda.device import require_device
        from tkdebug.runtime.cuda.pointers import accessible_address

        require_device()
        name = self._fn.params[position].name
        return accessible_address(self._fn.__name__, name, value, device)

    def _check_inside(self, position: int, value: Any, device: int) -> None:
        """Check the tensors of a tuple or descriptor."""
        if isinstance(value, TensorDescriptor):
            self.address(position, value.base, device, None)
        elif isinstance(value, tuple):
            for item in value:
                self._check_inside(position, item, device)
        elif is_tensor_like(value):
            self.address(position, value, device, None)

    def compile(
        self,
        key: Key,
        device: int,
        values: tuple[Any, ...],
        surplus: tuple[Any, ...],
        options: dict[str, Any],
        grid: Any,
    ) -> CompiledKernel | None:
        """The kernel for a key that has none yet; None when a cache hook takes the compile."""
        if surplus or any(value is MISSING for value in values):
            # Raises, as the arguments do not fit.
            self._fn.explain(*self._as_given(values, surplus, options))
        try:
            hash(key)
        except TypeError:
            # An option that has no hash, such as a dict of libraries.
            key = (*key[:2], constant_key(options), *key[3:])
        return self._fn.compile_native(key, device, values, _unfolded(options), grid is WARMUP)

    def renew(
        self,
        kernel: CompiledKernel,
        key: Key,
        device: int,
        values: tuple[Any, ...],
        options: dict[str, Any],
        grid: Any,
    ) -> CompiledKernel | None:
        """The kernel to launch when a global it was compiled with is another object now."""
        if not self._fn.forget_if_stale(kernel, key):
            return kernel
        return self._fn.compile_native(key, device, values, _unfolded(options), grid is WARMUP)

    def elsewhere(
        self,
        grid: Any,
        values: tuple[Any, ...],
        surplus: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        """Launch in another mode than native."""
        args, kwargs = self._as_given(values, surplus, options)
        return self._fn.run_in_mode(args, grid, False, kwargs)

    def _as_given(
        self, values: tuple[Any, ...], surplus: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        options = _unfolded(options)
        if surplus:
            return (*values, *surplus), options
        named = {
            name: value
            for name, value in zip(self._fn.arg_names, values, strict=True)
            if value is not MISSING
        }
        return (), {**options, **named}

    def dimensions(self, grid: Any) -> tuple[int, int, int]:
        """The grid in full, or an error that says what is wrong with it."""
        return grid_dimensions(self._fn.__name__, grid)


def _unfolded(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with those in their places that are parameters too."""
    if DOUBLED not in options:
        return options
    plain = {name: value for name, value in options.items() if name != DOUBLED}
    return {**plain, **dict(options[DOUBLED])}


def _make_launch(
    path: NativePath, fn: JITFunction, first_values: Sequence[Any]
) -> Callable[..., Any]:
    import torch

    refuse_variadic(fn.__name__, fn.signature)
    getters = _torch_getters()
    namespace: dict[str, Any] = {
        f"{_P}Tensor": torch.Tensor,
        f"{_P}Parameter": torch.nn.Parameter,
        f"{_P}Descriptor": TensorDescriptor,
        f"{_P}aligned_descriptor": aligned_descriptor,
        # Not through the class, on which the interpreter may have put a method that takes notes.
        f"{_P}data_ptr": torch._C.TensorBase.data_ptr,  # noqa: SLF001
        f"{_P}device": getters[0],
        f"{_P}stream": getters[1],
        f"{_P}find": fn.kernels.get,
        f"{_P}path": path,
        f"{_P}unusual": path.unusual,
        f"{_P}constant_key": constant_key,
        f"{_P}constexpr": constexpr,
        f"{_P}knobs": KNOBS,
        f"{_P}hooks": HOOKS,
        f"{_P}own_mode": OWN_MODE.get,
        f"{_P}main": MAIN_THREAD,
        f"{_P}native_modes": ("native", "auto") if obstacle() is None else ("native",),
        f"{_P}MISSING": MISSING,
        f"{_P}WARMUP": WARMUP,
    }
    for parameter in fn.params:
        default = parameter.default if parameter.has_default else MISSING
        namespace[f"{_P}default_{parameter.num}"] = default
    text = _launch_text(fn.params, first_values)
    exec(compile(text, f"<launch of {fn.__name__}>", "exec"), namespace)
    launch: Callable[..., Any] = namespace[f"{_P}launch"]
    launch.__name__ = fn.__name__
    launch.__qualname__ = fn.__qualname__
    return launch


def _torch_getters() -> tuple[Callable[[], int], Callable[[int], int]]:
    """Functions for the current device and for a device's current stream, below torch.cuda."""
    import torch

    if not has_real_gpu():
        # A launch is refused before these are asked; a warm-up compiles for the default target.
        return (lambda: 0), (lambda index: 0)
    return torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream  # noqa: SLF001


def _launch_text(params: Sequence[KernelParam], first_values: Sequence[Any]) -> str:
    names = "".join(f"{parameter.name}, " for parameter in params)
    by_name = ", ".join(f"{p.name!r}: {_grid_value(p)}" for p in params)
    passed = "".join(f"{_P}v{p.num}, " for p in params if not p.is_constexpr)
    hints = [*first_values, *[None] * (len(params) - len(first_values))]
    prepare = "".join(
        _prepare_text(p, hint) for p, hint in zip(params, hints, strict=True) if not p.is_constexpr
    )
    keys = "".join(_key_text(parameter) for parameter in params)
    return f"""\
def {_P}launch({_P}grid, {_declare(params)}**{_P}options):
    if {_P}knobs.interpret_kernels or (
            {_P}own_mode() or {_P}main.mode or {_P}knobs.mode) not in {_P}native_modes:
        if not {_P}path.is_native():
            return {_P}path.elsewhere({_P}grid, ({names}), {_P}surplus, {_P}options)
    {_P}dev = {_P}device()
{prepare}\
    {_P}key = (
        {_P}dev, {_P}knobs.debug, tuple({_P}options.items()) if {_P}options else (), {keys})
    try:
        {_P}kernel = {_P}find({_P}key)
    except TypeError:
        {_P}kernel = None
    if {_P}kernel is None or {_P}surplus:
        {_P}kernel = {_P}path.compile(
            {_P}key, {_P}dev, ({names}), {_P}surplus, {_P}options, {_P}grid)
        if {_P}kernel is None: return None
    for {_P}get, {_P}name, {_P}value in {_P}kernel.watched:
        if {_P}get({_P}name) is not {_P}value:
            {_P}kernel = {_P}path.renew(
                {_P}kernel, {_P}key, {_P}dev, ({names}), {_P}options, {_P}grid)
            if {_P}kernel is None: return None
            break
    if {_P}grid.__class__ is not tuple:
        if {_P}grid is {_P}WARMUP: return {_P}kernel
        if callable({_P}grid): {_P}grid = {_P}grid({{{by_name}}})
    if {_P}grid.__class__ is not tuple: {_P}x, {_P}y, {_P}z = {_P}path.dimensions({_P}grid)
    elif len({_P}grid) == 1:
        {_P}x, = {_P}grid
        {_P}y = {_P}z = 1
    elif len({_P}grid) == 2:
        {_P}x, {_P}y = {_P}grid
        {_P}z = 1
    elif len({_P}grid) == 3: {_P}x, {_P}y, {_P}z = {_P}grid
    else: {_P}path.dimensions({_P}grid)
    if not ({_P}x.__class__ is {_P}y.__class__ is {_P}z.__class__ is int
            and 0 < {_P}x <= {GRID_LIMITS[0]} and 0 < {_P}y <= {GRID_LIMITS[1]}
            and 0 < {_P}z <= {GRID_LIMITS[2]}):
        {_P}x, {_P}y, {_P}z = {_P}path.dimensions(({_P}x, {_P}y, {_P}z))
        if not ({_P}x and {_P}y and {_P}z): return {_P}kernel
    if {_P}hooks.launch:
        {_P}kernel.launch_hooked(
            ({_P}x, {_P}y, {_P}z), {_P}stream({_P}dev), ({names}), ({passed}))
    else:
        {_P}kernel.submit({_P}x, {_P}y, {_P}z, {_P}stream({_P}dev), {passed})
    return {_P}kernel
"""


def _declare(params: Sequence[KernelParam]) -> str:
    declared = ""
    keyword_only = False
    for parameter in params:
        if parameter.source.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            declared += f"*{_P}surplus, "
        declared += f"{parameter.name}={_P}default_{parameter.num}, "
    return declared if keyword_only else f"{declared}*{_P}surplus, "


def _grid_value(parameter: KernelParam) -> str:
    name = parameter.name
    return f"{name}.value if {name}.__class__ is {_P}constexpr else {name}"


def _key_text(parameter: KernelParam) -> str:
    name, num = parameter.name, parameter.num
    if parameter.is_constexpr:
        plain = f"{name}.__class__ is int or {name}.__class__ is str"
        return f"{name} if {plain} else {_P}constant_key({name}), "
    return f"{_P}k{num}, {_P}s{num}, "


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
    other = f"{_P}unusual({num}, {name}, {_P}dev, {_P}grid)"
    lines += ["else:", f"    {_P}k{num}, {_P}s{num}, {_P}v{num} = {other}"]
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
        branches["none"] = (f"{name} is None", [f"{_P}k{num} = {_P}s{num} = {_P}v{num} = None"])
    return branches


def _tensor_branch(parameter: KernelParam) -> tuple[str, list[str]]:
    name, num = parameter.name, parameter.num
    kind = f"{name}.dtype" if parameter.declared_type is None else "'declared'"
    kinds = f"{name}.__class__ is {_P}Tensor or {name}.__class__ is {_P}Parameter"
    statements = [
        f"{_P}v{num} = {_P}data_ptr({name})",
        f"{_P}k{num} = {kind}",
        f"{_P}s{num} = {_alignment(parameter, f'{_P}v{num}')}",
        f"if {name}.get_device() != {_P}dev: {_P}path.address({num}, {name}, {_P}dev, {_P}grid)",
    ]
    return kinds, statements


def _descriptor_branch(parameter: KernelParam) -> tuple[str, list[str]]:
    name, num = parameter.name, parameter.num
    base = f"{_P}b{num}"
    condition = f"{name}.__class__ is {_P}Descriptor and ({base} := {name}.base)"
    condition += f".__class__ is {_P}Tensor"
    kind = f"('descriptor', {base}.dtype, tuple({name}.block_shape), {name}.padding)"
    alignment = f"{_P}aligned_descriptor({name})" if parameter.notes_alignment else "False"
    statements = [
        f"{_P}v{num} = {name}",
        f"{_P}k{num} = {kind}",
        f"{_P}s{num} = {alignment}",
        f"if {base}.get_device() != {_P}dev and {_P}grid is not {_P}WARMUP:",
        f"    {_P}path.address({num}, {base}, {_P}dev, {_P}grid)",
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
        f"{_P}v{num} = {name}",
        f"{_P}k{num} = {kind}",
        f"{_P}s{num} = {_alignment(parameter, name)}",
    ]
    return condition, statements


def _float_branch(parameter: KernelParam) -> tuple[str, list[str]]:
    name, num = parameter.name, parameter.num
    kind = "'fp32'" if parameter.declared_type is None else "'declared'"
    statements = [f"{_P}v{num} = {name}", f"{_P}k{num} = {kind}", f"{_P}s{num} = False"]
    return f"{name}.__class__ is float", statements


def _alignment(parameter: KernelParam, value: str) -> str:
    return f"not {value} & {ALIGNMENT - 1}" if parameter.notes_alignment else "False"
