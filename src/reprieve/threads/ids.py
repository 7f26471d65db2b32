"""Ids of states: UUIDs of version 6, which sort by time, and never before one that is there already."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from uuid import UUID

_EPOCH = 0x01B21DD213814000  # 1582-10-15 to 1970-01-01 in steps of 100 ns


def new_id(after: str = "", *, clock: Callable[[], int] = time.time_ns) -> str:
    """A fresh id that sorts behind `after`, also where the clock is behind the one that made it."""
    ticks = clock() // 100 + _EPOCH
    last = _ticks(after)
    if last is not None:
        ticks = max(ticks, last + 1)
    return _uuid6(ticks)


def moment_of(id: str) -> int:
    """When an id was made, in ns since 1970; 0 if it does not say."""
    ticks = _ticks(id)
    return 0 if ticks is None else (ticks - _EPOCH) * 100


def _uuid6(ticks: int) -> str:
    number = (ticks >> 12 & 0xFFFFFFFFFFFF) << 80 | 6 << 76 | (ticks & 0xFFF) << 64
    return str(UUID(int=number | 0b10 << 62 | int.from_bytes(os.urandom(8), "big") >> 2))


def _ticks(id: str) -> int | None:
    try:
        uuid = UUID(id)
    except ValueError:
        return None
    if uuid.version != 6:
        return None
    return uuid.int >> 80 << 12 | uuid.int >> 64 & 0xFFF
