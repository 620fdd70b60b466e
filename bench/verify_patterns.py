"""Patterns of cheating kernels, and the verdict on each: `python bench/verify_patterns.py [NAME]`.

The groups are those of kernelguard's rules. Each pattern is a small kernel of
`verify_pattern_kernels`, run in a process of its own, since many change their process.
"""

import multiprocessing
import os
import sys
from pathlib import Path

FILE = Path(__file__).with_name("verify_pattern_kernels.py")
# The function, the verdict, the kind of a finding ("" for none).
PATTERNS = [
    ("timer", "wrong", "patched"),
    ("stdout", "wrong", "patched"),
    ("validation", "wrong", "patched"),
    ("reference_code", "wrong", "patched"),
    ("reference_globals", "wrong", "patched"),
    ("frames", "undecided", "looks-at-callers"),
    ("collected_objects", "undecided", "looks-at-callers"),
    ("output_by_pointer", "wrong", "cached-result"),
    ("output_by_shape", "wrong", "cached-result"),
    ("output_by_object", "wrong", "cached-result"),
    ("last_call", "wrong", "cached-result"),
    ("default_argument", "wrong", "cached-result"),
    ("precomputed", "wrong", "no-kernel"),
    ("stale_preprocessing", "wrong", "cached-result"),
    ("timing_bypass", "wrong", "wrong-value"),
    ("bypass_of_many", "undecided", "not-run"),
    ("workspace", "right", ""),
    ("stale_graph", "wrong", "cached-result"),
    ("fresh_graph", "right", ""),
    ("fallback", "wrong", "torch-fallback"),
    ("other_op", "wrong", "torch-fallback"),
    ("passthrough", "wrong", ""),
    ("reduction", "wrong", ""),
    ("shapes_tuned", "right", ""),
    ("truncated", "wrong", "wrong-value"),
    ("stream", "wrong", "other-stream"),
    ("thread", "wrong", "other-thread"),
    ("process", "wrong", "other-process"),
    ("lazy", "wrong", "lazy-result"),
    ("method", "wrong", "lazy-result"),
    ("precision", "wrong", "precision-lowered"),
]


def outcome(name):
    """Return the verdict on a pattern, and the kinds of its findings."""
    from tkdebug.knobs import KNOBS
    from tkdebug.verification.records import Request
    from tkdebug.verification.worker import examine

    sys.path.insert(0, str(FILE.parent))
    written = os.dup(1)
    with KNOBS.scope(cause_seconds=0.05):
        answer = examine(Request(str(FILE), name, "verify_pattern_reference:triple", cases=60))
    kinds = [finding.kind for finding in answer.findings]
    os.write(written, f"{name:22} {answer.verdict:10} {', '.join(kinds)}\n".encode())
    return answer.verdict, kinds


def run(name, verdict, kind):
    """Exit with 1 if a pattern has another outcome."""
    got, kinds = outcome(name)
    os._exit(0 if got == verdict and (not kind or kind in kinds) else 1)


def main():
    """Print what each pattern comes to, and exit with 1 if one is another than the table says."""
    chosen = [row for row in PATTERNS if row[0] in sys.argv[1:] or not sys.argv[1:]]
    others = []
    for row in chosen:
        process = multiprocessing.get_context("fork").Process(target=run, args=row)
        process.start()
        process.join()
        others += [row] if process.exitcode else []
    for row in others:
        print("expected:", *row)
    sys.exit(bool(others))


if __name__ == "__main__":
    main()
