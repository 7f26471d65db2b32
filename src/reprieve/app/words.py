"""Names and sizes as text that a person can read and that harms no terminal."""

from __future__ import annotations

# Not printable by Unicode's categories, yet part of how some scripts are written: joiners and the wide space.
_HARMLESS = "\u200c\u200d\u3000"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def safe(text: str, *, keep: str = "") -> str:
    """Text without anything that moves a cursor, changes direction or colour, or is not text at all.

    Control characters, ESC, bidirectional marks, line separators and undecodable bytes are written as escapes:
    a file name must not be able to hide what a plan says about it.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or c in _HARMLESS else _escape(c) for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # the byte itself
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def path(raw: bytes) -> str:
    """A path as shown to a person."""
    return safe(raw.decode("utf-8", "surrogateescape")) or "."


def count(number: int, noun: str, plural: str = "") -> str:
    """1 file, 2,000 files."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: int) -> str:
    """512 bytes, 1.5 kB, 20 MB; powers of 1000, as disks are sold and as settings read them."""
    if number < 1000:
        return count(number, "byte")
    value = float(number)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5 or unit == "TB":
            break
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"
