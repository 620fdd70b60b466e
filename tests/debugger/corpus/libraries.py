"""The libraries whose kernels are compared, as checkouts, and how their tests are run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Library:
    """A checkout and its tests.

    Attributes:
        folder: of the checkout.
        version: what `kernels.txt` was made with.
        sources: the folder to import from, in the checkout.
        tests: pytest's arguments that choose all of its tests.
        environment: variables that the library reads.
        options: of pytest, for all of its tests.
    """

    folder: str
    version: str
    tests: tuple[str, ...]
    sources: str = "."
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


LIBRARIES = {
    "attorch": Library("attorch", "67c2772b (2026-08)", ("tests",)),
    "conch": Library("conch", "e2c5ecfe (2025-10)", ("tests", "-o", "python_files=*_test.py")),
    "fla": Library(
        "flash-linear-attention",
        "bc3b101d (2026-08)",
        ("tests/ops", "-k", "not tilelang and not cp_ and not context_parallel"),
    ),
    "flaggems": Library(
        "FlagGems",
        "3.0, 532ff438 (2025-11)",
        ("tests",),
        "src",
        {"GEMS_VENDOR": "nvidia"},
        ("--mode", "quick"),
    ),
    "liger": Library(
        "Liger-Kernel",
        "0.8.2, ead96b61 (2026-08)",
        (
            "test/transformers",
            "--ignore-glob=*cute*",
            "--ignore-glob=*cutile*",
            "--ignore=test/transformers/test_auto_model.py",
            "--ignore=test/transformers/test_monkey_patch.py",
            "--ignore=test/transformers/test_trainer_integration.py",
            "--ignore=test/transformers/test_transformers.py",
        ),
        "src",
    ),
    "mamba": Library("mamba", "e9594ce1 (2026-07)", ("tests/ops/triton",)),
}
