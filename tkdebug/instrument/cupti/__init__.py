"""The GPU's work and its times, by CUPTI's activity records: every kernel, copy and fill.

`library` finds libcupti and calls it, `layouts` describes its records in memory and reads whole
buffers of them at once, `joining` finds the launch of each record, and `recording` takes filled
buffers and does it all in rounds, beside the script. Records are those of NVIDIA's
`cupti_activity.h`.
"""
