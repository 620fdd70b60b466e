"""Every test of this folder runs its kernels interpreted, on the CPU, from the same seed."""

from __future__ import annotations

import pytest
import torch

import tkdebug


@pytest.fixture(autouse=True)
def interpreted():
    torch.manual_seed(0)
    with tkdebug.mode("interpret"):
        yield
