"""The recorded passes of kernels: the changes of each, op by op and line by line."""
