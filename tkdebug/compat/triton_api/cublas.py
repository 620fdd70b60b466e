"""cuBLAS as upstream's benchmarks call it, by torch, which calls cuBLAS where there is a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.errors import UsageError

if TYPE_CHECKING:
    import torch


class CublasLt:
    """Products of matrices.

    Args:
        workspace: memory that cuBLAS may use; torch brings its own.
    """

    def __init__(self, workspace: torch.Tensor) -> None:
        self._workspace = workspace

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write the product of `a` and the transposed `b` to `c`.

        Args:
            a: (M, K).
            b: (N, K), of the dtype of `a`.
            c: (M, N), of the same.

        Raises:
            UsageError: the shapes or dtypes do not fit each other.
        """
        wanted = (a.shape[0], b.shape[0])
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or tuple(c.shape) != wanted:
            raise UsageError(
                f"CublasLt.matmul: got a {tuple(a.shape)}, b {tuple(b.shape)}, c {tuple(c.shape)}, "
                "expected (M, K), (N, K), (M, N)"
            )
        if not a.dtype == b.dtype == c.dtype:
            raise UsageError(
                f"CublasLt.matmul: got {a.dtype}, {b.dtype} and {c.dtype}, expected one dtype"
            )
        if a.element_size() == 1:
            # torch has no plain product of 8-bit floats; it is exact in 16 bits but for its sums.
            c.copy_((a.half() @ b.half().T).to(c.dtype))
        else:
            c.copy_(a @ b.T)
