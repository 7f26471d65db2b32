"""Say names, sizes and times so that a person can read them and a terminal is not harmed."""

from __future__ import annotations

import time

from reprieve.app.words import count, path, safe, size

__all__ = ["age", "count", "moment", "path", "safe", "size", "span"]


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
