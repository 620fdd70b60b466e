"""Whether machine code that this process makes can run in it."""

from __future__ import annotations

import ctypes
import mmap


def may_run_what_it_writes() -> bool:
    """Whether this process may make memory executable.

    SELinux (execmem), systemd (MemoryDenyWriteExecute) and `prctl(PR_SET_MDWE)` forbid it; LLVM
    does not report that, and a call of its code crashes.
    """
    page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[0] = 0  # LLVM's pages have been written, too
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    status: int = protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC)
    page.close()
    return status == 0
