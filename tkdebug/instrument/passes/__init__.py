"""The recorded passes of kernels: what each changed, op by op and line by line."""
