"""`triton.runtime.cache`: keys; the cache itself is tkdebug's own."""

from __future__ import annotations

from tkdebug.compat.triton_api.compiler import base32_of_hex as _base32
from tkdebug.compat.triton_api.compiler import triton_key

from .. import knobs

__all__ = ["_base32", "knobs", "triton_key"]
