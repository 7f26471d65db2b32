"""Files that are wholly ours in another program's folder: write them, and never over a file that is not ours."""

from __future__ import annotations

from reprieve.errors import Misconfigured

# Every file of ours says how to get rid of it, which is also how we know it again.
MARK = "reprieve unprotect"


def is_own(text: str) -> bool:
    """True if we wrote this file."""
    return MARK in text


def replace_own(text: str | None, new: str, *, name: str) -> str:
    """`new`, unless something that is not ours is there."""
    if text is not None and text.strip() and not is_own(text):
        raise Misconfigured(
            f"{name!r} is there already and is not ours; it was left alone",
            hints=["rename that file, then run the same command again"],
        )
    return new


def remove_own(text: str) -> str | None:
    """None (the file goes away) if it is ours, else the text as it is."""
    return None if is_own(text) else text
