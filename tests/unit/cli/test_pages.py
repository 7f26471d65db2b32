"""Memory that two processes share after a fork is had at once, and not by one fault after the other."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: how many pages faulted when all of a block was written to after a fork that still lives.
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
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for at in range(0, len(block), 4096):
    block[at] = 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
os.close(end)
os.waitpid(child, 0)
"""


def _faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", _COUNT, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the helper is Linux's")
def test_what_is_shared_since_a_fork_is_had_at_once() -> None:
    assert _faults("shared") >= 1000
    assert _faults("had") < 100
