"""Mistakes in the request of `tkdebug run`, found before the script runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tkdebug.checks import NATIVE_CHECKS, NO_CHECKS
from tkdebug.cli.places import check_writable
from tkdebug.cli.runs.request import USUAL_TARGET, RunRequest, is_upstream
from tkdebug.errors import UnsupportedError, UsageError
from tkdebug.findings.baseline import load
from tkdebug.instrument.launch_listeners.nvtx_ranges import check_nvtx
from tkdebug.instrument.session_file.creation import check_free, check_replaceable, file_behind
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import ModeName
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.terminal.text import tell

# Options about kernels that tkdebug compiles or interprets, by the knob that each changes.
_OF_OUR_COMPILER = {
    "checks": "--check",
    "check_launches": "--check-launches",
    "interpret_kernels": "--interpret",
    "ask_triton": "--ask-triton",
    "triton_version": "--triton",
    "cross_compile": "--target",
}


def check_run(request: RunRequest) -> None:
    """Report every mistake that can be seen before the script runs; the request is in force.

    Raises:
        UsageError: there is a mistake.
    """
    if is_upstream(request.given):
        check_upstream(request.given, request.mode)
    else:
        _check_mode(request)
        _check_asked(request)
    _check_target(request)
    _check_watches(request)
    _check_timelines(request)
    _check_instrumentations()
    if request.nvtx:
        check_nvtx()
    if request.session is not None:
        session = file_behind(request.session)
        check_replaceable(session)
        check_free(session)
        check_writable("-o", session)
    _check_files(request)


def check_upstream(given: Mapping[str, object], mode: ModeName) -> None:
    """Check that an installed Triton can compile for the request.

    Args:
        given: the knobs that options change.
        mode: how kernels run.

    Raises:
        UsageError: no Triton can, or tkdebug's own compiler or interpreter is asked for.
    """
    from tkdebug.compat.upstream.installed import installed_triton
    from tkdebug.runtime.device.driver import has_real_gpu

    for option in _of_our_compiler(given, mode):
        raise UsageError(
            f"--compiler triton: {option} is about kernels that tkdebug compiles or interprets; "
            "leave one of the two out"
        )
    installed = installed_triton()
    if not has_real_gpu():
        tell(
            f"--compiler triton: there is no GPU here; Triton {installed.version} compiles for a "
            "target that the script names (triton.compile), and launches nothing"
        )


def _of_our_compiler(given: Mapping[str, object], mode: ModeName) -> Iterator[str]:
    if mode == "interpret":
        yield "--mode interpret"
    for name, option in _OF_OUR_COMPILER.items():
        value = given.get(name, ())
        for one in value if isinstance(value, tuple) else (value,):
            if one != NO_CHECKS or name == "cross_compile":
                yield f"{option} {one}"


def check_known(option: str, asked: str, also: str = "") -> None:
    """Refuse architectures that tkdebug does not compile for.

    Raises:
        UsageError: `asked` is no such architecture; the message names those there are, and `also`.
    """
    from tkdebug.compiler.targets import target_of, targets
    from tkdebug.compiler.targets.registered_backends import unsupported_gpu

    try:
        target_of(asked)
    except UnsupportedError:
        sentence = unsupported_gpu(asked)
        if sentence is not None:
            raise UsageError(f"{option}: {sentence}") from None
        known = ", ".join(targets())
        raise UsageError(f"{option}: got {asked!r}, expected {known}{also}") from None


def _check_asked(request: RunRequest) -> None:
    """Check that the Triton of `ask_triton` is there, and has the version of the kernels."""
    from tkdebug.compat.upstream.installed import triton_of

    if KNOBS.ask_triton is None:
        return
    option = _source(request, "ask_triton", "--ask-triton")
    _, installed = triton_of(KNOBS.ask_triton, option)
    language = KNOBS.triton_version
    if not installed.version.startswith(f"{language}."):
        raise UsageError(
            f"{option} {KNOBS.ask_triton}: it has Triton {installed.version}, and kernels are "
            f"compiled as those of {language}; add --triton, or give another Python"
        )


def _source(request: RunRequest, knob: str, option: str) -> str:
    """Return the source of a knob's value: `option`, or its variable."""
    return option if knob in request.given else next(iter(KNOBS.table[knob].sources))


def _check_target(request: RunRequest) -> None:
    """Check that tkdebug can compile for the asked target, if kernels are interpreted."""
    from tkdebug.compiler.targets.registered_backends import unsupported_gpu
    from tkdebug.runtime.compile.cross_compilation import obstacle, tell_unsupported

    asked = request.native_target
    if asked is None:
        if KNOBS.cross_compile is None:
            return
        if unsupported_gpu(KNOBS.cross_compile) is not None:
            tell_unsupported(KNOBS.cross_compile)
        else:
            check_known(_source(request, "cross_compile", "--target"), KNOBS.cross_compile)
        return
    check_known("--target", asked)
    if _runs_natively(request.mode):
        if request.given.get("advise") and asked == USUAL_TARGET:
            raise UsageError(
                "--advise: kernels run on the GPU here, and remarks are of interpreted ones; use "
                "`tkdebug advise script.py`, or add --mode interpret"
            )
        raise UsageError(
            f"--target {asked}: kernels are compiled for the GPU here; add --mode interpret"
        )
    reason = obstacle(asked)
    if reason is not None:
        raise UsageError(f"--target {asked}: {reason}")


def _check_watches(request: RunRequest) -> None:
    from tkdebug.watches.places import read_watch

    for text in KNOBS.watches:
        try:
            read_watch(text)
        except UsageError as error:
            raise UsageError(f"{_source(request, 'watches', '--watch')} {text}: {error}") from None


def _check_timelines(request: RunRequest) -> None:
    from tkdebug.timelines import read_request

    if KNOBS.timelines and not _runs_natively(request.mode):
        option = _source(request, "timelines", "--timeline")
        raise UsageError(f"{option}: kernels are interpreted; it needs kernels on a GPU")
    for text in KNOBS.timelines:
        read_request(text)


def _check_instrumentations() -> None:
    """Check the names in the variable; the option takes no others."""
    if not KNOBS.instrumentations:
        return
    from tkdebug.plugins import names

    known = tuple(names("tkdebug.instrumentation"))
    for name in KNOBS.instrumentations:
        if name not in known:
            expected = " or ".join(known) or "a plugin that measures, of which none is installed"
            raise UsageError(f"TKDEBUG_INSTRUMENT: got {name!r}, expected {expected}")


def _runs_natively(mode: ModeName) -> bool:
    return mode == "native" or (mode == "auto" and platform_in_force().obstacle() is None)


def _check_mode(request: RunRequest) -> None:
    launches = request.given.get("check_launches")
    if request.mode == "interpret" and launches is not None:
        raise UsageError(
            f"--check-launches {launches}: kernels are interpreted, which checks "
            "every launch; leave it out, or run with --mode native"
        )
    _check_gpu(request)
    if request.mode != "native":
        return
    checks = request.checks
    for name in checks.asked:
        # With all checks, the first native kernel names those that it does not get.
        if name not in NATIVE_CHECKS and not checks.are_all:
            raise UsageError(
                f"--check {name}: native kernels are not checked for it; run with --mode interpret"
            )
    if checks.asked and checks.launches == "none":
        raise UsageError(
            f"--check {checks.asked[0]}: no native launch is checked; add --check-launches first, "
            "or run with --mode interpret"
        )
    reason = platform_in_force().obstacle()
    if reason is not None:
        raise UsageError(f"--mode native: {reason}")


def _check_gpu(request: RunRequest) -> None:
    """Check the options that need kernels on a GPU, and their needs there."""
    stacks, stalls = ("--stacks", request.stacks), ("--stalls", request.stalls)
    for option, is_asked in (stacks, stalls):
        dumps = _core_dumps_by(request) if is_asked and request.mode != "interpret" else None
        if dumps is not None:
            raise UsageError(
                f"{option}: needs CUPTI, which cannot record beside the core dumps that {dumps} "
                "switches on; leave one of them out"
            )
    for option, is_asked in (stalls, ("--hang-timeout", request.hang_timeout_s is not None)):
        if is_asked and not _runs_natively(request.mode):
            raise UsageError(f"{option}: kernels are interpreted; it needs kernels on a GPU")
    # Options about all kernels on a GPU, torch's too, need one even if ours are interpreted.
    for option, is_asked in (stacks, ("--coredump", request.coredump)):
        if is_asked and request.mode != "native" and platform_in_force().obstacle() is not None:
            raise UsageError(f"{option}: nothing runs on a GPU here; leave it out")


def _core_dumps_by(request: RunRequest) -> str | None:
    """Return what switches core dumps on; None if nothing does."""
    if request.hang_timeout_s is not None:
        return "--hang-timeout"
    if request.coredump:
        return "--coredump"
    dumps = platform_in_force().crash_dumps
    return None if dumps is None else dumps.asked_for_by()


def _check_files(request: RunRequest) -> None:
    read = {"the script": request.program.script, "the session": request.session}
    report = request.report
    _check_baseline(request, {**read, "the report": None if report is None else report.path})
    if report is not None:
        check_writable("--report", report.path, read)
        _ = report.format


def _check_baseline(request: RunRequest, read: Mapping[str, Path | None]) -> None:
    """Check that the baseline can be read, and written if that is asked for.

    Raises:
        UsageError: it cannot; a file that is no baseline is not written over.
    """
    path = request.checks.baseline_path
    if request.checks.updates_baseline:
        if path is None:
            raise UsageError("--update-baseline: give the file, too: --baseline FILE")
        check_writable("--baseline", path, read)
        if not path.exists():
            return
    if request.checks.baseline is not None:
        _ = load(request.checks.baseline)  # named as it was typed
