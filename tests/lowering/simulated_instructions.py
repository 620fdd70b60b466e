"""LLVM's plain instructions and intrinsics on numpy: the tables of `llvm_simulator`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SIGNED = {np.dtype(f"u{w}"): np.dtype(f"i{w}") for w in ("1", "2", "4", "8")}
SIGNED[np.dtype("bool")] = np.dtype("i1")


def _signed(op: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def apply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        kind = SIGNED[x.dtype]
        return op(x.view(kind), y.view(kind)).view(x.dtype)

    return apply


def _shift(op: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def apply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return op(x, y.astype(x.dtype))

    return apply


BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda x, y: x + y if x.dtype != bool else x ^ y,
    "sub": lambda x, y: x - y if x.dtype != bool else x ^ y,
    "mul": lambda x, y: x * y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "shl": _shift(lambda x, y: x << y),
    "lshr": _shift(lambda x, y: x >> y),
    "ashr": _signed(lambda x, y: x >> y),
    "udiv": lambda x, y: x // y,
    "urem": lambda x, y: x % y,
    "fadd": lambda x, y: x + y,
    "fsub": lambda x, y: x - y,
    "fmul": lambda x, y: x * y,
    "fdiv": lambda x, y: x / y,
}
COMPARE: dict[str, Callable[..., np.ndarray]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "gt": lambda x, y: x > y,
    "le": lambda x, y: x <= y,
    "ge": lambda x, y: x >= y,
}
CALLS: dict[str, Callable[..., np.ndarray]] = {
    "fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(a.dtype),
    "minnum": np.fmin,
    "maxnum": np.fmax,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "smin": _signed(np.minimum),
    "smax": _signed(np.maximum),
    "umin": np.minimum,
    "umax": np.maximum,
    "fabs": np.abs,
}
