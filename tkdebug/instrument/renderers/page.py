"""The page of a run: one HTML file that needs nothing else, neither a network nor a server.

Responsible for putting the model into the page. What the first screen says is in the HTML, escaped
by the template; everything else is data, which the page's script shows as text: it makes no markup
of strings, and the page's policy refuses that, other scripts, styles, and every address.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tkdebug.instrument.analyses.comparison import Comparison, compare
from tkdebug.instrument.home.json_text import plain
from tkdebug.instrument.home.model import model_of
from tkdebug.instrument.home.records import RunModel
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.renderers.json_format import fault_object
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import json_text
from tkdebug.terminal.text import visible

if TYPE_CHECKING:
    from jinja2 import Template

_GLYPHS = {"fault": "✖", "warning": "▲", "clean": "✓"}
_COMPRESSION = 7


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """Yield the page of a run."""
    model = model_of(session, faults)
    yield from _page(model, blocks_of(model))


def render_comparison(before: Session, after: Session) -> Iterator[str]:
    """Yield the page of two runs: the later one as `render` has it, with the earlier beside it."""
    earlier, later = model_of(before), model_of(after)
    (data, code), (data_before, code_before) = _packed_model(later), _packed_model(earlier)
    blocks = {
        "model": data,
        "before": data_before,
        "compared": _packed(_compared(compare(before, after), earlier, later)),
        "code": code,
        "before-code": code_before,
    }
    yield from _page(later, blocks)


def render_live(model: RunModel, blocks: Mapping[str, str], version: str) -> str:
    """Return the page of a run that is served, and asks for newer `blocks`.

    Args:
        model: the run.
        blocks: its `blocks_of`.
        version: the version of the session that the blocks are of; the page asks for a newer one.
    """
    return visible("".join(_page(model, blocks, version)))


def blocks_of(model: RunModel) -> dict[str, str]:
    """Return the model and its texts, packed."""
    data, code = _packed_model(model)
    return {"model": data, "code": code}


def policy(connects: str = "") -> str:
    """Return the page's content policy: its own script and style, and no address but `connects`.

    Args:
        connects: the source of addresses; "" for none.
    """
    asked = f"; connect-src {connects}" if connects else ""
    return (
        f"default-src 'none'; script-src '{_digest(asset('page.js'))}'; "
        f"style-src '{_digest(asset('page.css'))}'{asked}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'"
    )


def _page(model: RunModel, blocks: Mapping[str, str], version: str = "") -> Iterator[str]:
    names = {source.file: source.name for source in model.files}
    yield from _template().generate(
        model=model,
        names=_Visible(names),
        glyph=_GLYPHS,
        style=asset("page.css"),
        script=asset("page.js"),
        policy=policy("'self'" if version else ""),
        version=version,
        blocks=blocks,
    )


class _Visible(dict[str, str]):
    """Names of files; "" for one that has none."""

    def __missing__(self, key: str) -> str:
        return ""


def _packed_model(model: RunModel) -> tuple[str, str]:
    """Return the model without its texts, which the first screen waits for, and the texts."""
    data = plain(model)
    assert isinstance(data, dict)
    code = {}
    for kernel in data.get("kernels", ()):
        for variant in kernel.get("variants", ()):
            code[variant["key"]] = variant.pop("code", None)
    return _packed(data), _packed({key: texts for key, texts in code.items() if texts})


def _packed(data: object) -> str:
    # Without a time, so that the same session gives the same file.
    packed = gzip.compress(json_text(data).encode(), _COMPRESSION, mtime=0)
    return base64.b64encode(packed).decode()


def _compared(found: Comparison, earlier: RunModel, later: RunModel) -> dict[str, object]:
    """Return a comparison as the page has it; times that were not measured are those predicted."""
    basis = later.run.basis
    means = [
        {k.name: k.total_ns / k.launches for k in run.kernels if k.launches and k.total_ns}
        for run in (earlier, later)
    ]
    launches = [{k.name: k.launches for k in run.kernels} for run in (earlier, later)]
    changes = {one.kernel: one.time for one in found.kernels}
    kernels = []
    for name in dict.fromkeys((*launches[1], *launches[0])):
        before_ns, after_ns = means[0].get(name), means[1].get(name)
        change = changes.get(name)
        ratio = after_ns / before_ns if before_ns and after_ns else None
        kernels.append(
            {
                "kernel": name,
                "launches": [launches[0].get(name, 0), launches[1].get(name, 0)],
                "before_ns": before_ns,
                "after_ns": after_ns,
                "ratio": ratio,
                "verdict": "unknown" if change is None or basis != "measured" else change.verdict,
            }
        )
    return {
        "kernels": kernels,
        "note": f"Times are {basis}."
        + (" The two runs' are not of one kind." if earlier.run.basis != basis else ""),
        "new_faults": [fault_object(group.fault) for group in found.new_faults],
        "gone_faults": [fault_object(group.fault) for group in found.gone_faults],
        "kept_faults": found.kept_faults,
    }


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # 40 ms, which only a page takes

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_shown
    )
    return environment.from_string(asset("page.html.j2"))


def _shown(value: object) -> object:
    """Make a text harmless; markup is autoescape's, control characters are `visible`'s."""
    return visible(value) if type(value) is str else value


@cache
def asset(name: str) -> str:
    """Return a template, style or script of `page_assets`."""
    return (files(__package__) / "page_assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
