"""Targets: the features of each architecture, and the backends that compile for them."""

from tkdebug.compiler.targets.registered_backends import (
    backend_of,
    register_backend,
    target_of,
    targets,
)
from tkdebug.compiler.targets.target import Target

__all__ = ["Target", "backend_of", "register_backend", "target_of", "targets"]
