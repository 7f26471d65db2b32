"""What a time means that somebody names: the last nanosecond of it. Pure, but for the time zone of this machine.

`10m ago` is that long before now. An ISO time is meant to the end of its last part, as people mean it: `2026-11-15` to
the end of that day, `…T10:00` of that minute, `….366732Z` of that microsecond. So an entry's own time, as `log` and
`show` print it, means that entry, although they cut off what is smaller.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

_AGO = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SECOND = 1_000_000_000
_PARTS = {2: 3600 * _SECOND, 4: 60 * _SECOND, 6: _SECOND}  # by the digits of the clock: an hour, minute, second
_LAST = (1 << 63) - 1  # the year 2999 is more nanoseconds away than SQLite counts


def last_of(text: str, now_ns: int) -> int | None:
    """The last nanosecond of `10m ago` or of an ISO time (local if it names no zone); None if it is neither."""
    words = text.split()
    if len(words) == 2 and words[1] == "ago" and words[0][-1] in _AGO:
        count = number(words[0][:-1])
        return None if count is None else max(0, now_ns - count * _AGO[words[0][-1]] * _SECOND)
    if len(text) < 10 or not text[4] == text[7] == "-":
        return None  # a week of a year (2026-W47) is not read either
    from datetime import datetime

    try:
        end = _end(datetime.fromisoformat(text), text[11:])
    except (ValueError, OverflowError):
        return None
    return None if end is None else max(0, min(end, _LAST))


def number(text: str) -> int | None:
    """A number that somebody wrote; None if it is none, or longer than any that can be meant."""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _end(begins: datetime, clock: str) -> int | None:
    """The last nanosecond of what begins there, by how much of the clock was written."""
    for sign in "Z+-":
        clock = clock.partition(sign)[0]  # without the zone
    clock, _, fraction = clock.replace(":", "").replace(",", ".").partition(".")
    if not clock:
        # by the clock: not every day has 24 hours
        return _ns(begins.replace(hour=23, minute=59, second=59, microsecond=999_999)) + 999
    length = _PARTS.get(len(clock))
    if length is None:
        return None
    if fraction:
        length = 10 ** max(0, 9 - len(fraction))
    finer = int(fraction[6:9].ljust(3, "0"))  # what a datetime does not hold
    return _ns(begins) + finer + length - 1


def _ns(moment: datetime) -> int:
    """Nanoseconds since 1970; in whole numbers, since a float has no place for them."""
    from datetime import UTC, datetime, timedelta

    since = moment.astimezone() - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1) * 1000
