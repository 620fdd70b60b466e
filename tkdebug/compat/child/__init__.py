"""The first folder on the PYTHONPATH of child processes, for its `sitecustomize`."""
