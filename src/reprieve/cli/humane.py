"""Say names, sizes and times so that a person can read them and a terminal is not harmed."""

from __future__ import annotations

import time

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


def span(seconds: float) -> str:
    """12 s, 3 min, 2 h."""
    if seconds < 99.5:
        return f"{max(1, round(seconds))} s"
    if seconds < 99.5 * 60:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"


def age(at_ns: int, now_ns: int | None = None) -> str:
    """Just now, 12 minutes ago, 3 hours ago, 5 days ago; the date when it is longer than four weeks."""
    seconds = ((time.time_ns() if now_ns is None else now_ns) - at_ns) / 1e9
    if seconds < -60:
        return "at " + moment(at_ns)  # a clock was set back; a made-up age would mislead
    if seconds < 45:
        return "just now"
    for limit, length, noun in ((45 * 60, 60, "minute"), (22 * 3600, 3600, "hour"), (28 * 86400, 86400, "day")):
        if seconds < limit:
            return count(max(1, round(seconds / length)), noun) + " ago"
    return "on " + moment(at_ns)[:10]


def moment(at_ns: int) -> str:
    """The local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns // 1_000_000_000))
