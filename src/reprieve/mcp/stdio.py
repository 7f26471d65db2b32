"""Standard input for a server: kept from child processes, and with an end to how long one message may be."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

LONGEST = 4 << 20  # bytes of one message, as over HTTP


class Lines(io.TextIOBase):
    """Lines of UTF-8. One that is too long is read away and becomes a line that is no message: an error, no crash."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        raw = self._raw.readline(LONGEST + 1)
        if len(raw) > LONGEST and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = self._raw.readline(LONGEST)
            return f'"a message of more than {LONGEST} bytes"\n'
        return raw.decode("utf-8", "replace")


@contextmanager
def bounded_stdin() -> Iterator[Lines]:
    """Standard input on a descriptor of our own; who reads descriptor 0 from now on finds its end."""
    private = os.dup(sys.stdin.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    with open(private, "rb", closefd=False) as raw:
        yield Lines(raw)
