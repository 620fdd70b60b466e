"""Targets: what each GPU architecture offers, and the stages that compile for it."""

from tkdebug.compiler.targets.targets import TARGETS, Target, target_of

__all__ = ["TARGETS", "Target", "target_of"]
