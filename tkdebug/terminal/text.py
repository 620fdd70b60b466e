"""Text on its way to a terminal: characters that would act on it are written out.

Names, paths, source lines and messages come from sessions, cubins, core dumps, assembler logs and
command lines of any origin. Invariant: a result of `visible` moves no cursor, starts no escape
sequence, reorders and hides no text, and can be encoded in UTF-8. A script's own output is not
changed and does not come through here. Nothing of tkdebug is imported, so that errors can use it.
"""

from __future__ import annotations

import re
import sys

# C0 and C1 controls but tab and newline; soft hyphen; what is zero columns wide or fills one with
# nothing; separators of lines and paragraphs; overrides and isolates of the direction of text
# (UAX #9); surrogates; annotations; tags. As a class of a regular expression.
UNSAFE_CLASS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(f"[{UNSAFE_CLASS}]")
_UNSAFE_OR_BREAK = re.compile(f"[\t\n{UNSAFE_CLASS}]")
# Bold, faint, italic, underlined, the 16 colours, and their ends. Not concealed, not inverse.
_STYLE = r"(?:[01234]|2[234]|3[0-79]|9[0-7])"
_UNSAFE_OR_STYLE = re.compile(rf"\x1b\[(?:{_STYLE}(?:;{_STYLE})*)?m|[{UNSAFE_CLASS}]")
_SHORT_ESCAPES = {"\t": "\\t", "\n": "\\n"}


def visible(text: str, *, styled: bool = False) -> str:
    r"""Return `text` with unsafe characters written as in Python source (`\x1b`).

    Args:
        text: a text of any origin; its newlines and tabs stay.
        styled: leave colours and bold type unchanged: for text that was put together from parts
            that are `visible`, by a caller that adds the colours.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return _UNSAFE_OR_STYLE.sub(_unless_style, text) if styled else _UNSAFE.sub(_escape, text)


def visible_line(text: str) -> str:
    """Return `visible` text on one line: a newline in a name would forge a line."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE_OR_BREAK.sub(_escape, text)


def tell(text: str, *, styled: bool = False) -> None:
    """Print `text` on stderr under tkdebug's name, made `visible`, in one write.

    Args:
        text: without a newline at its end.
        styled: as for `visible`.
    """
    # A process may begin without stderr, and `print(file=None)` would go to the script's stdout.
    if sys.stderr is not None:
        sys.stderr.write(f"tkdebug: {visible(text, styled=styled)}\n")


def _unless_style(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else _escape(match)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
