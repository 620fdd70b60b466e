"""`triton.knobs`: upstream's switches over tkdebug's own."""

from __future__ import annotations

from tkdebug.compat.triton_api.knobs import (
    AutotuningKnobs,
    CacheKnobs,
    CompilationKnobs,
    InertKnobs,
    LanguageKnobs,
    ProtonKnobs,
    RuntimeKnobs,
)
from tkdebug.compat.triton_api.launch_hooks import HookChain

runtime = RuntimeKnobs()
compilation = CompilationKnobs()
autotuning = AutotuningKnobs()
cache = CacheKnobs()
build = InertKnobs("build", cc=None, cudacrt_path=None, cudart_path=None, impl=None)
language = LanguageKnobs()
nvidia = InertKnobs("nvidia", dump_nvptx=False, disable_ptxas_opt=False, libdevice_path=None)
amd = InertKnobs("amd", use_buffer_ops=True, libhip_path=None)
proton = ProtonKnobs()

__all__ = [
    "HookChain",
    "amd",
    "autotuning",
    "build",
    "cache",
    "compilation",
    "language",
    "nvidia",
    "proton",
    "runtime",
]
