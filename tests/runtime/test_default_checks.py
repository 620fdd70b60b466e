"""Checks that are on: by default, asked for, left out; in processes that scripts start, too."""

import os

import pytest

from tkdebug import compat
from tkdebug.checks import DEFAULT_CHECKS
from tkdebug.knobs import KNOBS, scope
from tkdebug.runtime.device.modes import with_defaults


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), DEFAULT_CHECKS),
        (("race", "nan"), (*DEFAULT_CHECKS, "race")),
        (("none",), ()),
        (("none", "race"), ("race",)),
    ],
)
def test_interpreted_kernels_have_the_default_checks_unless_asked_otherwise(asked, expected):
    assert with_defaults(asked, "interpret") == expected


def test_native_kernels_have_no_default_checks():
    assert with_defaults((), "native") == ()
    assert with_defaults(("race",), "native") == ("race",)


def test_install_looks_for_the_default_checks():
    with compat.install("interpret"):
        assert KNOBS.checks == DEFAULT_CHECKS
        assert os.environ["TKDEBUG_CHECKS"] == ",".join(DEFAULT_CHECKS)
    assert KNOBS.checks == ()


def test_install_leaves_them_out_by_argument_and_by_knob():
    with compat.install("interpret", checks=["none"]):
        assert KNOBS.checks == ()
        # Processes that are started get none by default either.
        assert os.environ["TKDEBUG_CHECKS"] == "none"
    with scope(checks=("none", "race")), compat.install("interpret"):
        assert KNOBS.checks == ("race",)
