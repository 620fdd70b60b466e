"""The folder that stands first on the PYTHONPATH of child processes, for its `sitecustomize`."""
