"""Code as it was loaded on a device: relocated cubins, whose addresses are the device's.

Responsible for the contents of an address: function, call chain, line of the PTX. Invariant: gaps
of the image's tables are not filled by guesses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tkdebug.errors import Frame
from tkdebug.linemap.nvidia.cubins import CubinError, read_line_info
from tkdebug.linemap.nvidia.elf_sections import (
    ET_EXEC,
    SHT_NOBITS,
    SHT_STRTAB,
    Section,
    SectionsError,
    sections,
)
from tkdebug.linemap.nvidia.line_programs import INSTRUCTION_BYTES, LineProgramError
from tkdebug.linemap.nvidia.ptx_locations import GENERATED_FILE

# (the driver's handle of a module, its relocated cubin)
Image = tuple[int, bytes]
_BREAKPOINT_OPCODE = 0x95C  # BPT, in the low 12 bits of an instruction (read off sm_90 code)
_MAX_NAME_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an address in loaded code.

    Attributes:
        function: symbol of the kernel or device function.
        offset: bytes from its start.
        module: the driver's handle of the module.
        frames: call chain by the image's line table, outermost first; () if it has none.
        ptx_line: line (1-based) of the PTX text; None if the image has no such table.
        image: the cubin, relocated.
    """

    function: str
    offset: int
    module: int
    frames: tuple[Frame, ...]
    ptx_line: int | None
    image: bytes


def is_trap(images: tuple[Image, ...], pc: int) -> bool:
    """Whether the instruction at address `pc` is a trap."""
    for _, image in images:
        for _, section in text_sections(image):
            at = pc - section.address
            if 0 <= at <= section.size - INSTRUCTION_BYTES:
                start = section.offset + at
                word = int.from_bytes(image[start : start + 2], "little")
                return word & 0xFFF == _BREAKPOINT_OPCODE
    return False


def text_sections(image: bytes) -> Iterator[tuple[str, Section]]:
    """Name of the function and section of each piece of code in a loaded image."""
    try:
        found = list(sections(image, ET_EXEC, "cubin"))
    except SectionsError:
        return
    names = image[:0]
    for section in found:
        if section.type == SHT_STRTAB and _name(image, section, section.name) == ".shstrtab":
            names = image[section.offset : section.offset + section.size]
    prefix = b".text."
    for section in found:
        end = names.find(b"\0", section.name)
        name = names[section.name : end] if end >= 0 else b""
        if name.startswith(prefix) and section.type != SHT_NOBITS:
            yield name[len(prefix) :].decode(errors="replace"), section


def _name(image: bytes, strings: Section, offset: int) -> str:
    start = strings.offset + offset
    end = image.find(b"\0", start, start + _MAX_NAME_BYTES)
    return image[start:end].decode(errors="replace") if end >= 0 else ""


def place_in(module: int, image: bytes, function: str, base: int, pc: int) -> Place:
    """The place of address `pc` in `function`, whose code was loaded at `base`."""
    frames: tuple[Frame, ...] = ()
    ptx_line = None
    try:
        lines = read_line_info(image).get(function)
    except (CubinError, LineProgramError):
        lines = None
    if lines is not None:
        # Addresses of a relocated image are those on the device.
        relocated = bool(lines.source) and lines.source[0][0] >= base
        at = pc if relocated else pc - base
        frames = lines.frames_at(at)
        ptx_line = lines.ptx_line_at(at)
    if frames and frames[-1].file in ("", GENERATED_FILE):
        frames = ()
    return Place(function, pc - base, module, frames, ptx_line, image)
