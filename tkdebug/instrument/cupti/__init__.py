"""The GPU's work and its times, by CUPTI's activity records: every kernel, copy and fill.

`library` finds libcupti and calls it, `layouts` says how its records lie in memory and reads whole
buffers of them at once, `collection` takes the buffers that were filled, `joining` finds which
record belongs to which launch, and `recording` does it all in rounds, beside the script. Records
are those of NVIDIA's `cupti_activity.h`.
"""
