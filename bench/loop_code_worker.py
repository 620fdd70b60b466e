"""One of the two processes of `loop_code.py`: compiles its kernels, one way, without a GPU.

    loop_code_worker.py --with tkdebug|triton --targets sm_80,sm_90a --only "" --out FOLDER

Writes FOLDER/INDEX-TARGET.cubin for each case, and FOLDER/errors.json with what did not compile.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

WITH = sys.argv[sys.argv.index("--with") + 1]
if WITH == "tkdebug":
    from tkdebug.compat import install

    install("interpret")

from loop_kernels import CASES, Case  # noqa: E402

_DTYPES = {"*fp16": torch.float16, "*i32": torch.int32, "*i64": torch.int64}
_ALIGNMENT = 16


def by_upstream(case: Case, target: str) -> bytes:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    capability = int(target.removeprefix("sm_").rstrip("a"))
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for index, (name, value) in enumerate(case.arguments.items()):
        if name in case.constants or value == 1:
            signature[name], constants[name] = "constexpr", value
            continue
        signature[name] = _upstream_type(value)
        if isinstance(value, str) or (isinstance(value, int) and value % _ALIGNMENT == 0):
            attributes[index,] = [["tt.divisibility", _ALIGNMENT]]
    source = ASTSource(case.kernel, signature, constants, attributes)
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    cubin: bytes = made.asm["cubin"]
    _refuse_too_large(made.metadata.shared, target)
    return cubin


def _upstream_type(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "fp32" if isinstance(value, float) else "i32"


def _refuse_too_large(shared_bytes: int, target: str) -> None:
    most = (99 if target in ("sm_86", "sm_89") else 163 if target == "sm_80" else 227) << 10
    if shared_bytes > most:
        raise ValueError(f"{shared_bytes} bytes of shared memory")


def by_tkdebug(case: Case, target: str) -> bytes:
    from dataclasses import replace

    from tkdebug.compiler.targets import target_of
    from tkdebug.compiler.targets.nvptx.compile import NativeOptions, compile_module
    from tkdebug.runtime.arguments.specialize import alignment_key
    from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor
    from tkdebug.runtime.compile.compilation import compile_tile_ir

    fn = case.kernel
    values = {
        name: MockTensor(_DTYPES[value]) if isinstance(value, str) else value
        for name, value in case.arguments.items()
    }
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages}
    kernel = fn.warmup(**values, grid=(1,), **options)
    alignment = alignment_key(fn.params, list(values.values()))
    src = replace(kernel.src, alignment=alignment, options=replace(kernel.src.options, arch=target))
    module = compile_tile_ir(src).module
    native = NativeOptions(case.num_warps, case.num_stages)
    made = compile_module(module, native, target_of(target))
    _refuse_too_large(made.shared_bytes, target)
    return made.code.cubin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--with", dest="compiler", required=True)
    parser.add_argument("--targets", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    compile_one = by_tkdebug if options.compiler == "tkdebug" else by_upstream
    errors: dict[str, str] = {}
    for index, case in enumerate(CASES):
        if options.only not in case.name:
            continue
        for target in options.targets.split(","):
            stem = f"{index}-{target}"
            try:
                cubin = compile_one(case, target)
            except Exception as error:
                errors[stem] = f"{type(error).__name__}: {error}"
                continue
            (options.out / f"{stem}.cubin").write_bytes(cubin)
    names = {str(i): case.name for i, case in enumerate(CASES) if options.only in case.name}
    (options.out / "made.json").write_text(json.dumps({"names": names, "errors": errors}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
