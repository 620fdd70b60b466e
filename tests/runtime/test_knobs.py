from pathlib import Path

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import UsageError
from tkdebug.knobs import KNOB_TABLE, Knobs, scope
from tkdebug.knobs.values import parse_path, parse_size_bytes
from tkdebug.process.disk_cache import user_cache


@pytest.fixture
def knobs(monkeypatch):
    for knob in KNOB_TABLE:
        for variable in knob.sources:
            monkeypatch.delenv(variable, raising=False)
    return Knobs()


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("512M", 512 << 20), ("1GiB", 1 << 30), ("2.5g", 5 << 29), ("4096", 4096), ("8 kb", 8192)],
)
def test_size_accepts_units(text, size_bytes):
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "much", "-1", "0", "0.5", "1X", "nan", "9" * 400])
def test_size_refuses(text):
    with pytest.raises(ValueError, match="positive size"):
        parse_size_bytes(text)


def test_knob_default(knobs):
    assert knobs.memory_budget_bytes == 1 << 30
    assert knobs.mode == "auto"


def test_knob_read_from_environment_once(knobs, monkeypatch):
    monkeypatch.setenv("TKDEBUG_QUICK", "1")
    assert knobs.quick is True
    monkeypatch.setenv("TKDEBUG_QUICK", "0")
    assert knobs.quick is True
    knobs.refresh()
    assert knobs.quick is False


def test_knob_bad_environment_names_variable_got_and_expected(knobs, monkeypatch):
    monkeypatch.setenv("TKDEBUG_MEMORY_BUDGET", "lots")
    with pytest.raises(UsageError) as caught:
        knobs.read_all()
    text = str(caught.value)
    assert "TKDEBUG_MEMORY_BUDGET" in text
    assert "'lots'" in text
    assert "512M" in text
    assert "\n" not in text


def test_upstream_interpret_variable(knobs, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert knobs.mode == "interpret"


def test_own_variable_wins_over_upstream(knobs, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TKDEBUG_MODE", "native")
    assert knobs.mode == "native"


def test_upstream_dump_variables(knobs, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "1")
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path))
    assert knobs.dump_dir == tmp_path
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "0")
    knobs.refresh()
    assert knobs.dump_dir is None


def test_user_without_a_home_has_a_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "tkdebug"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert user_cache().parent == tmp_path
    assert parse_path("~nobody/cache") == Path("~nobody/cache")


def test_scope_restores_value(knobs):
    with knobs.scope(quick=True, memory_budget_bytes="2M"):
        assert knobs.quick
        assert knobs.memory_budget_bytes == 2 << 20
        with knobs.scope(quick=False):
            assert not knobs.quick
        assert knobs.quick
    assert not knobs.quick
    assert knobs.memory_budget_bytes == 1 << 30


def test_scope_restores_after_error(knobs):
    with pytest.raises(RuntimeError), knobs.scope(dump_dir=Path("x")):
        raise RuntimeError
    assert knobs.dump_dir is None


@pytest.mark.parametrize("change", [{"nope": 1}, {"quick": 3}, {"memory_budget_bytes": True}])
def test_scope_refuses(change):
    with pytest.raises(UsageError, match=next(iter(change))), scope(**change):
        pass


def test_unknown_knob_is_named_with_those_that_there_are(knobs):
    with pytest.raises(AttributeError, match=r"no knob 'quik'; there are mode, .*quick"):
        knobs.quik  # noqa: B018


def test_a_look_at_all_knobs_keeps_none(knobs, monkeypatch):
    knobs.read_all()
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    assert knobs.fp32_default == "ieee"
    with pytest.raises(UsageError, match="got 'fp16', expected one of tf32"):
        knobs.fp32_default = "fp16"


@pytest.mark.parametrize(
    ("default", "allows", "precision"),
    [("ieee", None, "ieee"), ("ieee", True, "ieee"), (None, False, "ieee"), (None, None, "tf32")],
)
def test_precision_of_fp32_dots_that_name_none(default, allows, precision):
    @tkdebug.jit
    def fp32_product(a_ptr, b_ptr, out_ptr, ALLOWS: tl.constexpr, B: tl.constexpr):
        at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
        out = tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), allow_tf32=ALLOWS)
        tl.store(out_ptr + at, out)

    x = torch.zeros(16, 16)
    with scope(fp32_default=default, mode="interpret"):
        kernel = fp32_product.warmup(x, x, x, allows, 16, grid=(1,))
    assert f'input_precision = "{precision}"' in kernel.asm["ttir"]
