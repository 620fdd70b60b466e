"""A package that looks like Triton to a worker, and decides by what a kernel's text says."""

from __future__ import annotations

INIT = """
import inspect, json, os, signal, sys, textwrap, time
from types import SimpleNamespace
from . import language

__version__ = "3.9.0"
runtime = SimpleNamespace(driver=SimpleNamespace(set_active=lambda driver: None))


class JITFunction:
    def __init__(self, fn, noinline=None, do_not_specialize=None):
        self.fn, self.__name__ = fn, fn.__name__
        self.src = textwrap.dedent(inspect.getsource(fn))
        self.arg_names = list(inspect.signature(fn).parameters)


def jit(fn, **options):
    return JITFunction(fn, **options)


def constexpr_function(fn):
    return fn


class CompilationError(Exception):
    def __init__(self, src, node, error_message):
        self.src, self.node, self.error_message = src, node, error_message


def _refuse(fn, text, cause=None):
    line = next(n for n, one in enumerate(fn.src.splitlines(), 1) if text in one)
    raise CompilationError(fn.src, SimpleNamespace(lineno=line), f"no {text}") from cause


def compile(src, target, options):
    print("what Triton prints is no answer")
    fn = src.fn
    seen = os.environ.get("MADE_UP_SEEN")
    if seen:
        names = {n: repr(v) for n, v in fn.fn.__globals__.items() if not n.startswith("__")}
        with open(seen, "a") as file:
            file.write(json.dumps({
                "signature": src.signature, "options": options, "arch": target.arch,
                "constants": [[list(path), repr(v)] for path, v in src.constants.items()],
                "attrs": [[list(path), pairs] for path, pairs in src.attrs.items()],
                "names": names, "environment": sorted(os.environ), "src": fn.src,
            }) + "\\n")
    if "CRASHES" in fn.src:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "TAKES_FOREVER" in fn.src:
        time.sleep(1000)
    if "FAILS_BY_PASS" in fn.src:
        os.write(2, f"{fn.fn.__code__.co_filename}:{fn.fn.__code__.co_firstlineno + 1}:3: "
                 "error: 'tt.load' op is odd\\n".encode())
        raise RuntimeError("PassManager::run failed")
    if "REFUSED" in fn.src:
        _refuse(fn, "REFUSED")
    helper = fn.fn.__globals__.get("helper")
    if isinstance(helper, JITFunction) and "REFUSED" in helper.src:
        try:
            _refuse(helper, "REFUSED")
        except CompilationError as error:
            _refuse(fn, "helper(", error)
"""
LANGUAGE = """
class constexpr:
    def __init__(self, value):
        self.value = value
    def __repr__(self):
        return f"constexpr[{self.value!r}]"

class dtype:
    def __init__(self, name):
        self.name = name
    def __repr__(self):
        return self.name

float32 = dtype("fp32")
load = store = arange = program_id = None
"""
COMPILER = """
class ASTSource:
    def __init__(self, fn, signature, constexprs, attrs):
        self.fn, self.signature, self.constants, self.attrs = fn, signature, constexprs, attrs
"""
BACKEND = """
from collections import namedtuple

GPUTarget = namedtuple("GPUTarget", "backend arch warp_size")
"""


def write_package(folder, init=INIT):
    """Make the package in `folder`."""
    files = {
        "__init__.py": init,
        "language.py": LANGUAGE,
        "compiler.py": COMPILER,
        "backends/__init__.py": "",
        "backends/compiler.py": BACKEND,
        "_C/libtriton.so": "",
    }
    for name, text in files.items():
        path = folder / "triton" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
