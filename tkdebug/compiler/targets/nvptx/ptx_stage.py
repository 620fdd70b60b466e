"""PTX to cubin with nvJitLink, in the worker process."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.targets.nvptx.stage_error import StageError


def version() -> tuple[int, int]:
    """nvJitLink's version, (13, 0).

    Raises:
        StageError: it is not installed.
    """
    nvjitlink = _nvjitlink()
    major, minor = nvjitlink.version()  # type: ignore[attr-defined]
    return major, minor


def assemble(ptx: bytes, name: str, options: Sequence[str]) -> tuple[bytes, str]:
    """The cubin and nvJitLink's log.

    Raises:
        StageError: nvJitLink refuses the PTX; its log is in `log`.
    """
    nvjitlink = _nvjitlink()
    handle = nvjitlink.create(len(options), list(options))
    try:
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), name)
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = _log(nvjitlink, handle)
            raise StageError("assemble", f"{error}", log) from None
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin), _log(nvjitlink, handle)
    finally:
        nvjitlink.destroy(handle)
