"""Programs of Node that tests drive, in exact versions, installed when the first test needs one."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PLACE = Path(__file__).resolve().parents[2] / ".node-tools"
PINS = ("@modelcontextprotocol/conformance@0.1.13", "@modelcontextprotocol/inspector@0.21.1")


def program(name: str) -> str:
    """The path of a program; skips where Node is missing, and fails there in CI."""
    PLACE.mkdir(exist_ok=True)
    found = PLACE / "node_modules" / ".bin" / name
    stamp = PLACE / "made-from"
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == " ".join(PINS) and found.exists()):
            problem = _install()
            if problem:
                if os.environ.get("CI"):
                    pytest.fail(problem)
                pytest.skip(problem)
            stamp.write_text(" ".join(PINS))
    return str(found)


def _install() -> str:
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    command = [
        npm,
        "install",
        "--no-save",
        "--no-package-lock",
        "--no-audit",
        "--no-fund",
        "--fetch-timeout=60000",  # of a connection that says nothing any more; npm itself waits for five minutes
        *PINS,
    ]
    # With a file of its own npm installs here without --prefix, which would hide the machine's settings from it
    (PLACE / "package.json").write_text('{"private": true}\n')
    try:
        done = subprocess.run(command, cwd=PLACE, capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        return f"npm did not install {' '.join(PINS)} within five minutes"
    return "" if done.returncode == 0 else f"npm could not install {' '.join(PINS)}: {done.stderr[-500:]}"
