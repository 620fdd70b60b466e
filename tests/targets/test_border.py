"""Only its own rooms know NVIDIA: everything else reaches it through the backend and platform."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "tkdebug"
ROOMS = ("compiler/targets/nvptx/", "runtime/cuda/", "linemap/")
MODULES = ("tkdebug.compiler.targets.nvptx", "tkdebug.runtime.cuda", "tkdebug.linemap.nvidia")
NVIDIA = (*MODULES, "llvmlite", "cuda", "pynvml")
# Where each is named, to be loaded at first use.
REGISTRIES = {"compiler/targets/registered_backends.py", "runtime/device/platform.py"}
# Hooks ask it for the lines of a cubin, and the recorder knows no backend.
READERS_OF_CUBINS = {"instrument/launch_listeners/kernel_objects.py"}


def is_nvidia(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in NVIDIA)


def named(tree: ast.AST) -> Iterator[str]:
    """NVIDIA's modules by name, also in functions: imports, and strings to make an import of."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from filter(is_nvidia, (alias.name for alias in names))
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from filter(is_nvidia, (f"{module}.{alias.name}" for alias in names))
            case ast.Constant(value=str(text)) if text.startswith(MODULES):
                yield text


def test_imports_and_names_are_found() -> None:
    tree = ast.parse(
        "import cuda.bindings, cudart\n"
        "def f():\n    from tkdebug.runtime import cuda, device\n"
        "import_module('tkdebug.compiler.targets.nvptx.backend')\n"
    )
    assert list(named(tree)) == [
        "cuda.bindings",
        "tkdebug.runtime.cuda",
        "tkdebug.compiler.targets.nvptx.backend",
    ]


def test_only_its_rooms_and_the_registries_name_nvidia() -> None:
    crossing: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        text = path.read_text()
        if place.startswith(ROOMS) or not any(name.rpartition(".")[2] in text for name in NVIDIA):
            continue
        if found := list(named(ast.parse(text))):
            crossing[place] = found
    assert crossing.keys() == REGISTRIES | READERS_OF_CUBINS, crossing
    assert all(len(found) == 1 for found in crossing.values()), crossing
