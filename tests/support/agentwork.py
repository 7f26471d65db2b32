"""An agent at work in a process tree of its own, beside the test's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPRIEVE = (sys.executable, "-m", "reprieve")
# The hook takes the nearest process above it that is half a second older for the agent: wait until this one is.
_AGENT = """
import os, subprocess, sys
def ticks(): return float(open("/proc/uptime").read().split()[0]) * os.sysconf("SC_CLK_TCK")
born = float(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
while ticks() - born < 100: pass
subprocess.run([*sys.argv[2:], "hook", "claude-code", "PreToolUse"], input=sys.argv[1].encode(), check=True)
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def run_under_way(project: Path) -> Iterator[None]:
    """`reprieve run` with a command that waits, until the block ends."""
    line = [*REPRIEVE, "run", "--label", "agent", "--", "sh", "-c", "echo open; cat"]
    yield from _until_the_end(line, project)


@contextmanager
def agent_in_a_call(project: Path, session: str = "s1") -> Iterator[None]:
    """Claude Code in the middle of a call, until the block ends."""
    payload = {"session_id": session, "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Bash",
               "tool_input": {"command": "make"}, "tool_use_id": "c1"}  # fmt: skip
    yield from _until_the_end([sys.executable, "-c", _AGENT, json.dumps(payload), *REPRIEVE], project)


def _until_the_end(line: list[str], project: Path) -> Iterator[None]:
    process = subprocess.Popen(line, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None and process.stdout is not None
    with process:
        assert process.stdout.readline() == b"open\n"
        try:
            yield
        finally:
            process.stdin.close()
            process.wait(60)
