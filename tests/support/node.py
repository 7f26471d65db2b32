"""Programs of Node that tests drive, in exact versions, installed when the first test needs one."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PLACE = Path(__file__).resolve().parents[2] / ".node-tools"
# what is installed together, in a folder of that name
PINS = {
    "mcp": ("@modelcontextprotocol/conformance@0.1.13", "@modelcontextprotocol/inspector@0.21.1"),
    "codex": ("@openai/codex@0.169.0",),
}


def program(name: str, of: str) -> str:
    """The path of a program of one of the folders; skips where Node is missing, and fails there in CI."""
    place, pins = PLACE / of, PINS[of]
    place.mkdir(parents=True, exist_ok=True)
    found = place / "node_modules" / ".bin" / name
    stamp = place / "made-from"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == " ".join(pins) and found.exists()):
            problem = _install(place, pins)
            if problem:
                if os.environ.get("CI"):
                    pytest.fail(problem)
                pytest.skip(problem)
            stamp.write_text(" ".join(pins))
    return str(found)


def _install(place: Path, pins: tuple[str, ...]) -> str:
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
        *pins,
    ]
    # With a file of its own npm installs here without --prefix, which would hide the machine's settings from it
    (place / "package.json").write_text('{"private": true}\n')
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        return f"npm did not install {' '.join(pins)} within five minutes"
    return "" if done.returncode == 0 else f"npm could not install {' '.join(pins)}: {done.stderr[-500:]}"
