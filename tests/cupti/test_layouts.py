"""The table of record layouts against the headers of CUPTI that are on this machine.

TKDEBUG_CUPTI_HEADERS may name folders with unpacked wheels of nvidia-cuda-cupti, separated by
colons; installed packages and the CUDA toolkit are looked at in any case.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    DRIVER,
    FIELDS,
    LAYOUTS,
    MEMCPY,
    MEMSET,
    layout_of,
    record_type,
)

STRUCTS = {
    CONCURRENT_KERNEL: "CUpti_ActivityKernel",
    MEMCPY: "CUpti_ActivityMemcpy",
    MEMSET: "CUpti_ActivityMemset",
    DRIVER: "CUpti_ActivityAPI",
}


def headers():
    roots = [*sys.path, "/usr/local/cuda*", *os.environ.get("TKDEBUG_CUPTI_HEADERS", "").split(":")]
    places = ("nvidia/*/include", "extras/CUPTI/include", "include", "*/nvidia/*/include")
    found = [h for r in roots if r for p in places for h in glob.glob(f"{r}/{p}/cupti_activity.h")]
    return sorted({os.path.realpath(header) for header in found})


def cuda_include():
    found = glob.glob("/usr/local/cuda*/include/cuda.h")
    found += [h for r in sys.path for h in glob.glob(f"{r}/nvidia/*/include/cuda.h")]
    return os.path.dirname(found[0]) if found else None


def api_version(header):
    text = (Path(header).parent / "cupti_version.h").read_text()
    return int(re.search(r"^#define CUPTI_API_VERSION\s+(\d+)", text, re.M)[1])


def newest(text, struct):
    """The last version of a struct, which is the one that the library writes."""
    return re.findall(rf"^}} ({struct}\d*);", text, re.M)[-1]


@pytest.mark.parametrize("header", headers() or [None])
def test_layout_is_that_of_the_header(header, tmp_path):
    compiler, include = shutil.which("gcc") or shutil.which("cc"), cuda_include()
    if header is None or compiler is None or include is None:
        pytest.skip("needs cupti_activity.h, cuda.h and a C compiler")
    text = Path(header).read_text(errors="replace")
    layout = layout_of(api_version(header))
    assert layout is not None, f"{header}: no layout of version {api_version(header)}"
    lines, expected = [], []
    for kind, struct in STRUCTS.items():
        name = newest(text, struct)
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(layout.sizes[kind])
        for field, (_, offset) in FIELDS[kind].items():
            lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
            expected.append(offset)
    source = tmp_path / "layout.c"
    includes = "".join(f"#include <{h}>\n" for h in ("stdio.h", "stddef.h", "cuda.h"))
    body = "".join(lines)
    source.write_text(f"{includes}#include <cupti_activity.h>\nint main(void) {{{body}}}")
    program = tmp_path / "layout"
    command = [
        compiler,
        f"-I{Path(header).parent}",
        f"-I{include}",
        str(source),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in printed.split()] == expected


def test_versions_of_layouts_do_not_overlap():
    bounds = [bound for layout in LAYOUTS for bound in (layout.first, layout.last)]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("version", [0, 17, 29, 120000, 129999, 130600, 140000])
def test_version_that_was_not_looked_at_has_no_layout(version):
    assert layout_of(version) is None


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.cuda)
def test_fields_lie_inside_of_the_record(layout):
    for kind, size_bytes in layout.sizes.items():
        assert record_type(kind, size_bytes).itemsize == size_bytes
        assert size_bytes % 8 == 0
