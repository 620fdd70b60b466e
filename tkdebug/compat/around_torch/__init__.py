"""Wrappers around functions of torch, by which tkdebug sees what a script does with tensors."""
