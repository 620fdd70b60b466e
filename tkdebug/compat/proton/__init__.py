"""`triton.profiler`, Proton by name, over tkdebug's own profiling sessions.

Proton listens to CUPTI and sees whatever runs on the GPU. tkdebug sees the launches of the script's
own kernels, by their events.
"""
