"""Memory that two processes share after a fork is had at once, and not by one fault after the other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# In a process of its own: which part of a block faulted when all of it was written to, after a fork that still lives.
_COUNT = """
import os, resource, sys
from reprieve.cli.helper import stead
block = bytearray(b"x") * (4 << 20)
go, end = os.pipe()
if not (child := os.fork()):
    os.close(end)
    os.read(go, 1)
    os._exit(0)
if sys.argv[1] == "had":
    stead.have_pages(stead.own_pages())
size = resource.getpagesize()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for at in range(0, len(block), size):
    block[at] = 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * size / len(block))
os.close(end)
os.waitpid(child, 0)
"""


def _faults(how: str) -> float:
    done = subprocess.run([sys.executable, "-c", _COUNT, how], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@pytest.mark.skipif(sys.platform != "linux" or _kernel() < (5, 14), reason="Linux has it since 5.14")
def test_what_is_shared_since_a_fork_is_had_at_once() -> None:
    assert _faults("shared") > 0.9
    assert _faults("had") < 0.1
