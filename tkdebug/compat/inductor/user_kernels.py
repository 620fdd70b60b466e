"""Users' kernels in a compiled graph: the arguments that they write, and their sources.

Torch analyses upstream's IR of a kernel; without that IR, torch copies every argument. The Tile IR
says which are written.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.tensor import is_jit_function
from tkdebug.errors import TkError
from tkdebug.runtime.arguments.binder import spec_of

if TYPE_CHECKING:
    from tkdebug.compat.replacements import Replacements


def analyse_user_kernels(patches: Replacements) -> None:
    """Let torch find what kernels write to from their Tile IR."""
    from torch._higher_order_ops import triton_kernel_wrap

    for name in ("identify_accessed_tensors", "identify_mutated_tensors"):
        if hasattr(triton_kernel_wrap, name):
            analysis = _written_tensors if "mutated" in name else _accessed_tensors
            patches.set(triton_kernel_wrap, name, analysis)


def as_written(kernel: Any) -> Any:
    """Return the user's kernel that a generated one copies, or None if it is Inductor's own."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    users: list[Any] = list(kernel_side_table.id_to_kernel.values())
    for user in map(_innermost, users):
        if is_jit_function(user) and user.__name__ == kernel.__name__:
            if _body(user) == _body(kernel):
                return user
    return None


def _innermost(kernel: Any) -> Any:
    """Return the kernel below autotuners and heuristics."""
    while not is_jit_function(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _body(kernel: Any) -> str:
    text = textwrap.dedent(kernel.kernel_source.text)
    return text[text.index("def ") :].strip()


def _written_tensors(kernel: Any, arguments: Any, *rest: Any) -> list[str]:
    """The tensor arguments that a kernel may write to."""
    from tkdebug.compiler.dialects import tt
    from tkdebug.compiler.frontend import compile_to_tile_ir
    from tkdebug.compiler.ops.emitter import CompileOptions
    from tkdebug.interpreter.memory_usage import written_arguments

    tensors = [name for name, value in arguments.items() if _is_tensor(value)]
    if configs := getattr(kernel, "configs", ()):
        # Which one is chosen does not change what is written.
        arguments = {**arguments, **configs[0].kwargs}
    kernel = _innermost(kernel)
    specs = {}
    for parameter in kernel.params:
        value = _sample(arguments.get(parameter.name, parameter.default))
        specs[parameter.name] = spec_of(kernel.__name__, parameter, value)
    try:
        module = compile_to_tile_ir(kernel, specs, CompileOptions())
    except TkError:
        # The launch says what is wrong.
        return tensors
    written = written_arguments(module)
    if written is None:
        return tensors
    leaves = tt.Func(module.function).arg_names
    return [name for name in tensors if any(leaves[i].split(".")[0] == name for i in written)]


def _sample(value: Any) -> Any:
    """Return a value of the kind that a launch will pass, such as 2 for a symbolic size."""
    import torch

    if _is_tensor(value) and not isinstance(value, torch.Tensor):
        return torch.empty(0, dtype=value.get_dtype(), device="meta")
    is_symbolic = isinstance(value, torch.SymInt) or type(value).__module__.startswith("sympy")
    return 2 if is_symbolic else value


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) or type(value).__name__ == "TensorBox"


def _accessed_tensors(kernel: Any, arguments: Any, *rest: Any) -> Any:
    from torch._higher_order_ops.triton_kernel_wrap import TensorAccesses
    from torch._inductor.dependencies import ReadWrites, StarDep
    from torch.utils._ordered_set import OrderedSet

    tensors = [name for name, value in arguments.items() if _is_tensor(value)]
    writes: Any = OrderedSet(StarDep(name) for name in _written_tensors(kernel, arguments))
    reads: Any = OrderedSet(StarDep(name) for name in tensors)
    return TensorAccesses(
        ReadWrites(reads=reads, writes=writes, index_exprs=OrderedSet()), can_fuse_epilogue=False
    )
