"""`import triton` under tkdebug."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil

import pytest

import tkdebug
from tkdebug import compat
from tkdebug.compat import triton_modules
from tkdebug.errors import TkError, UnsupportedError
from tkdebug.records.hook_chain import HOOKS

MODULES = """triton triton.language triton.language.core triton.language.standard
triton.language.math triton.language.random triton.language.extra
triton.language.extra.libdevice triton.language.extra.cuda triton.language.extra.cuda.libdevice
triton.runtime triton.runtime.jit triton.runtime.autotuner triton.runtime.driver
triton.runtime.errors triton.runtime.cache triton.runtime.interpreter triton.compiler
triton.compiler.compiler triton.compiler.errors triton.backends triton.backends.compiler
triton.backends.driver triton.knobs triton.tools triton.tools.tensor_descriptor triton.testing
triton.errors triton._utils triton._C triton._C.libtriton triton.tools.mxfp triton.experimental
triton.experimental.gluon triton.experimental.gluon.language""".split()


@pytest.fixture(autouse=True)
def installed():
    with compat.install("interpret") as installation:
        yield installation


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_spec_and_its_names(name):
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.name == name
    module = importlib.import_module(name)
    assert module.__spec__.origin.endswith(".py")
    for public in getattr(module, "__all__", ()):
        assert getattr(module, public) is not None


def test_version_is_upstreams_everywhere():
    import triton

    assert triton.__version__ == importlib.metadata.version("triton") == "3.9.0"


def test_submodules_are_attributes_of_their_parents():
    import triton

    assert triton.language.extra.libdevice.exp.name == "extra.libdevice.exp"
    assert triton.language.core.constexpr is triton.language.constexpr
    assert triton.runtime.driver.active.get_current_target().arch == 90
    assert str(triton.runtime.driver.active.get_active_torch_device()) == "cuda:0"


@pytest.mark.parametrize("package", ["triton", "triton.language", "triton.runtime"])
def test_importing_a_submodule_leaves_the_names_of_its_package(package):
    parent = importlib.import_module(package)
    before = dict(vars(parent))
    for found in pkgutil.iter_modules(parent.__path__):
        importlib.import_module(f"{package}.{found.name}")
    changed = [name for name, value in before.items() if vars(parent)[name] is not value]
    assert changed == []


def test_walking_the_packages_finds_each_module():
    import triton

    found = {
        module.name: module.ispkg for module in pkgutil.walk_packages(triton.__path__, "triton.")
    }
    assert found == {
        name: row.is_package for name, row in triton_modules.MODULES.items() if name != "triton"
    }


def test_what_torch_imports_is_there():
    from triton import Config, JITFunction, knobs  # noqa: F401
    from triton._utils import find_paths_if, get_iterable_path
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend, triton_key
    from triton.runtime.autotuner import Autotuner, OutOfResources  # noqa: F401
    from triton.runtime.cache import _base32
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import KernelInterface

    assert issubclass(JITFunction, KernelInterface)
    assert not issubclass(JITFunction, InterpretedFunction)
    assert ASTSource(fn=None, signature={}).constants == {}
    assert _base32("ff00") == "74AA"
    assert len(triton_key()) == 64
    assert find_paths_if(((1, (2,)), 3), lambda path, item: item > 1) == [(0, 1, 0), (1,)]
    assert get_iterable_path(((1, (2,)), 3), (0, 1, 0)) == 2
    options = make_backend(GPUTarget("cuda", 90, 32)).parse_options({})
    # By attribute, and as torch from 2.14.1 on looks for the names of options.
    assert options.num_warps == vars(options)["num_warps"] == 4
    with pytest.raises(UnsupportedError, match=r"make_backend for .*hip.* is not in"):
        make_backend(GPUTarget("hip", "gfx942", 64))


def test_ahead_of_time_compile_is_refused_by_name():
    import triton

    with pytest.raises(UnsupportedError, match=r"triton\.compile is not in this version"):
        triton.compile(None)


def test_missing_names_say_who_lacks_them():
    import triton
    import triton.language as tl

    for module, name in ((triton, "nowhere"), (tl, "nowhere"), (tl.extra.libdevice, "nowhere")):
        with pytest.raises(AttributeError, match=r"tkdebug does not provide triton.*nowhere"):
            getattr(module, name)
    with pytest.raises(ModuleNotFoundError, match=r"'triton\.nowhere': tkdebug does not provide"):
        importlib.import_module("triton.nowhere")
    with pytest.raises(ImportError):
        from triton.runtime.jit import nowhere  # noqa: F401


def test_errors_are_one_family():
    import triton

    assert triton.TritonError is TkError
    assert issubclass(triton.CompilationError, TkError)
    assert issubclass(triton.OutOfResources, TkError)


@pytest.fixture
def launch():
    import torch
    import triton
    import triton.language as tl

    tl_constexpr = tl.constexpr

    @triton.jit(launch_metadata=lambda grid, metadata, arguments: {"grid": grid[0]})
    def fill(x, n: tl_constexpr):
        tl.store(x + tl.arange(0, n), 1.0)

    return lambda: fill[(1,)](torch.empty(16, device="cuda"), n=16)


def test_launch_hooks_hear_upstreams_dict_in_upstreams_order(launch):
    from triton import knobs

    heard = []

    def first(lazy):
        heard.append(("first", lazy.get()))

    def second(lazy):
        heard.append(("second", lazy.data["name"]))

    knobs.runtime.launch_enter_hook.add(first)
    knobs.runtime.launch_enter_hook.add(first)
    knobs.runtime.launch_exit_hook.add(first)
    knobs.runtime.launch_exit_hook.add(second)
    launch()
    whole = {"name": "fill", "function": None, "stream": 0, "grid": 1}
    assert heard == [("first", whole), ("second", "fill"), ("first", whole)]
    assert knobs.runtime.launch_exit_hook.calls == [first, second]
    for hook in (first, second):
        knobs.runtime.launch_enter_hook.remove(hook)
        knobs.runtime.launch_exit_hook.remove(hook)
    launch()
    assert len(heard) == 3
    assert HOOKS.launch is None


def test_assigned_hook_replaces_only_what_was_assigned(launch):
    from triton import knobs

    heard = []
    added, one, two = (lambda lazy, n=n: heard.append(n) for n in ("added", "one", "two"))
    saved = knobs.runtime.launch_enter_hook
    saved.add(added)
    knobs.runtime.launch_enter_hook = one
    knobs.runtime.launch_enter_hook = two
    launch()
    assert heard == ["added", "two"]
    knobs.runtime.launch_enter_hook = saved
    launch()
    assert heard == ["added", "two", "added"]
    knobs.runtime.launch_enter_hook = None
    assert knobs.runtime.launch_enter_hook.calls == [added]
    knobs.runtime.launch_enter_hook.remove(added)


def test_hooks_without_an_event_are_refused_by_name():
    from triton import knobs

    def hook(**keywords):
        return None

    for group, name in (("runtime", "add_stages_inspection_hook"),):
        assert getattr(getattr(knobs, group), name) is None
        setattr(getattr(knobs, group), name, None)
        with pytest.raises(UnsupportedError, match=rf"triton\.knobs\.{group}\.{name} is not"):
            setattr(getattr(knobs, group), name, hook)


def test_knobs_follow_tkdebugs(tmp_path):
    from triton import knobs

    from tkdebug.knobs import KNOBS

    assert knobs.runtime.interpret is True
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        knobs.cache.dump_dir = str(tmp_path)
        assert KNOBS.debug
        assert knobs.compilation.dump_ir
        assert KNOBS.dump_dir == tmp_path
    assert not KNOBS.debug
    assert not knobs.compilation.dump_ir
    with pytest.raises(UnsupportedError, match=r"triton\.knobs\.nvidia\.dump_nvptx cannot"):
        knobs.nvidia.dump_nvptx = True
    with pytest.raises(AttributeError, match="runtime has no 'nowhere'"):
        _ = knobs.runtime.nowhere


def test_integer_types_by_width():
    core = importlib.import_module("triton.language.core")
    assert str(core.get_int_dtype(16, signed=False)) == "uint16"
    assert core.get_int_dtype(bitwidth=1, signed=True) is not None
    with pytest.raises(ValueError, match="no integer type has 7 bits"):
        core.get_int_dtype(7, True)


def test_gluon_kernels_may_be_defined_and_are_refused_by_name():
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl

    @gluon.jit
    def plain(pointer, size: gl.constexpr):
        gl.store(pointer, size)

    @gluon.jit(do_not_specialize=["pointer"])
    def with_options(pointer: gl.tensor):
        gl.store(pointer, 0)

    for kernel in (plain, with_options):
        assert kernel.__name__ in ("plain", "with_options")
        with pytest.raises(UnsupportedError, match=f"{kernel.__name__} is a Gluon kernel"):
            kernel[(1,)](None)
    with pytest.raises(AttributeError, match=r"gluon\.language\.BlockedLayout"):
        gl.BlockedLayout  # noqa: B018


@pytest.mark.parametrize("mode", ["interpret", "native"])
def test_gluon_kernels_under_triton_s_decorators_are_refused_at_their_launch(mode):
    import triton
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl

    @gluon.jit
    def copy(source, target, SIZE: gl.constexpr):
        gl.store(target, gl.load(source))

    sizes = triton.heuristics({"SIZE": lambda arguments: 64})
    configs = triton.autotune([triton.Config({"SIZE": size}) for size in (32, 64)], key=["source"])
    with tkdebug.mode(mode):
        for kernel in (sizes(copy), configs(copy), triton.heuristics({})(configs(copy))):
            assert kernel.arg_names == ["source", "target", "SIZE"]
            with pytest.raises(UnsupportedError, match="copy is a Gluon kernel"):
                kernel[(1,)](0, 0)
            with pytest.raises(UnsupportedError, match="copy is a Gluon kernel"):
                kernel.warmup(0, 0, grid=(1,))


def test_aggregate_is_where_scripts_look_for_it():
    import triton
    from triton.language.core import _aggregate

    assert triton.aggregate is _aggregate
