"""Programs of a CUDA device do without one what they do on a GPU."""

import ast
import socket
from pathlib import Path

import pytest
from warm_python import ENVIRONMENT, run_module

from tkdebug.compat import cuda_standin

HERE = Path(__file__).resolve().parent
PROGRAMS, TWO_PROCESSES = HERE / "device_programs.py", HERE / "two_processes.py"
NAMES = [
    node.name
    for node in ast.parse(PROGRAMS.read_text("utf-8")).body
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(item, ast.Name) and item.id == "case" for item in node.decorator_list)
]
EAGER = [name for name in NAMES if not name.startswith("compiled")]
COMPILED = [name for name in NAMES if name not in EAGER]
QUICK = [*EAGER, "compiled_to_the_cpu_and_back", "compiled_by_other_backends"]
without_gpu = pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")


def run(folder, *arguments):
    """Run a script under tkdebug with an empty cache of Inductor's."""
    cache = str(folder / "inductor")
    variables = {**ENVIRONMENT, "TORCHINDUCTOR_CACHE_DIR": cache}
    words = ("run", "--no-tui", *arguments)
    return run_module("tkdebug", *words, env=variables, cwd=folder, timeout=900)


@pytest.fixture(scope="module")
def said_of_programs(tmp_path_factory):
    """Return what is said of each program, and stderr."""
    done = run(tmp_path_factory.mktemp("programs"), PROGRAMS, "--keep-going", *QUICK)
    said = dict(line.partition(":")[::2] for line in done.stdout.splitlines())
    return said, done.stderr


@without_gpu
@pytest.mark.parametrize("name", QUICK)
def test_program_does_as_on_a_gpu(said_of_programs, name):
    said, printed = said_of_programs
    assert said.get(name) == "", f"{said.get(name)}\n{printed[-2000:]}"


@without_gpu
def test_programs_run_compiled(said_of_programs):
    assert "without being compiled" not in said_of_programs[1]


@without_gpu
@pytest.mark.slow
def test_all_compiled_programs_do_as_on_a_gpu(tmp_path):
    done = run(tmp_path, PROGRAMS, "--keep-going", *COMPILED)
    assert done.stdout.split("\n") == [*COMPILED, ""], done.stderr
    assert "without being compiled" not in done.stderr


@without_gpu
def test_two_processes_train_one_model(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = run(tmp_path, TWO_PROCESSES, port)
    assert done.stdout == "agree\n", done.stderr


@pytest.mark.gpu
def test_programs_do_on_a_gpu_what_is_expected(tmp_path):
    done = run(tmp_path, "--mode", "native", PROGRAMS, "--keep-going")
    assert done.stdout.split("\n") == [*NAMES, ""], done.stderr
