"""The CUDA device: contexts, loaded kernels, packed arguments, launches, event timing.

Talks to the driver through cuda-bindings; torch owns streams, memory and the choice of device.
"""
