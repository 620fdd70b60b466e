"""Sites of checks and watches as text: as they were, or refused."""

from __future__ import annotations

import pytest

from tkdebug.compiler.sites.checks import CheckSite
from tkdebug.compiler.sites.texts import read_sites, site_text
from tkdebug.compiler.sites.watches import WatchSite
from tkdebug.errors import Frame, IRError

CHECK = CheckSite(3, "oob-load", 17, None, (4, 32), 2, True)
WATCH = WatchSite(
    number=0,
    watch="k.py:17:acc",
    name="acc",
    frames=(Frame("k.py", 17, "kernel"), Frame("k.py", 3, "inner")),
    type="fp32[4]",
    dtype="fp32",
    element="f32",
    is_unsigned=False,
    shape=(4,),
    programs=(((0, 2), (1, 2)), ((5, 6), (0, 1))),
    condition="",
    is_whole=True,
)


@pytest.mark.parametrize("site", [CHECK, WATCH])
def test_a_site_is_as_it_was(site: CheckSite | WatchSite) -> None:
    assert read_sites(type(site), [site_text(site)], "sites") == (site,)


@pytest.mark.parametrize(
    ("site", "old", "new"),
    [
        (CHECK, "17", '"17"'),
        (CHECK, "17", "true"),
        (CHECK, "[4,32]", "[4,0]"),
        (CHECK, "[4,32]", "4"),
        (CHECK, '"tensor":null,', ""),
        (CHECK, "}", ',"more":1}'),
        (CHECK, "}", " " * 20_000 + "}"),
        (CHECK, "{", "["),
        (WATCH, "[0,2]", "[0,2,4]"),
        (WATCH, '"line":17', '"line":1.5'),
        (WATCH, '"is_whole":true', '"is_whole":1'),
    ],
)
def test_other_text_is_refused(site: CheckSite | WatchSite, old: str, new: str) -> None:
    text = site_text(site)
    assert old in text
    with pytest.raises(IRError, match=r"^sites: .* is no site: "):
        read_sites(type(site), [text.replace(old, new)], "sites")
