"""NVIDIA's libdevice (the `__nv_*` math functions as LLVM bitcode): finding it, and linking it.

Only the functions that a module calls are linked, each from a bitcode of its own that holds what it
needs and no more: parsing and linking the whole of it would cost 50 to 300 ms a kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.compiler.targets.nvptx.codegen.wire import StageError
from tkdebug.linemap.nvidia.packages import nvidia_folders, package_folders

if TYPE_CHECKING:
    from llvmlite import binding as llvm

FILE_NAME = "libdevice.10.bc"


def find_libdevice() -> Path | None:
    """Find libdevice's bitcode: of the nvidia-nvvm package, of CUDA_HOME, or of Triton's wheel."""
    return next((path for path in _places() if path.is_file()), None)


def _places() -> Iterator[Path]:
    for folder in nvidia_folders():
        yield folder / "nvvm" / "libdevice" / FILE_NAME
        yield folder / "cuda_nvcc" / "nvvm" / "libdevice" / FILE_NAME
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "nvvm" / "libdevice" / FILE_NAME
    for triton in package_folders("triton"):
        yield triton / "backends" / "nvidia" / "lib" / FILE_NAME
    yield Path("/usr/local/cuda/nvvm/libdevice") / FILE_NAME


class Libdevice:
    """Links libdevice functions into modules; keeps each function's pruned bitcode.

    Args:
        path: libdevice's bitcode; None if there is none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._whole: bytes | None = None
        self._pruned: dict[str, bytes] = {}

    def link_into(self, module: llvm.ModuleRef, context: llvm.ContextRef) -> None:
        """Give `module`, a module of `context`, the bodies of the `__nv_*` it declares.

        A name that libdevice does not have stays a declaration.

        Raises:
            StageError: there is no libdevice.
        """
        from llvmlite import binding as llvm

        names = [f.name for f in module.functions if f.is_declaration and _is_libdevice(f.name)]
        if names and self._path is None:
            raise StageError(
                "libdevice",
                f"{names[0]} needs libdevice, which is not installed; pip install nvidia-nvvm",
            )
        for name in names:
            bitcode = self._bitcode_of(name)
            if bitcode is None:
                continue
            part = llvm.parse_bitcode(bitcode, context)
            part.triple = module.triple
            part.data_layout = module.data_layout
            # Two functions may bring the same inner one: internal names do not clash.
            module.link_in(part)
            module.get_function(name).linkage = llvm.Linkage.internal

    def _bitcode_of(self, name: str) -> bytes | None:
        from llvmlite import binding as llvm

        if name in self._pruned:
            return self._pruned[name]
        if self._whole is None:
            assert self._path is not None
            self._whole = self._path.read_bytes()
        whole = llvm.parse_bitcode(self._whole, llvm.create_context())
        found = False
        for function in whole.functions:
            if not function.is_declaration:
                found |= function.name == name
                wanted = function.name == name
                function.linkage = llvm.Linkage.external if wanted else llvm.Linkage.internal
        if not found:
            return None
        passes = llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine()
        tuning = llvm.create_pipeline_tuning_options()
        passes.run(whole, llvm.create_pass_builder(machine, tuning))
        self._pruned[name] = whole.as_bitcode()
        return self._pruned[name]


def _is_libdevice(name: str) -> bool:
    return name.startswith("__nv_")
