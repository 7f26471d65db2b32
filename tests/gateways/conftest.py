"""Servers behind our gateway: one of few lines, and those of the protocol's own collection."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frameworks.environments import PLACE, NotMade, environment
from support.mcpwire import GATEWAY, Wire

HERE = Path(__file__).resolve().parent
TOY = (sys.executable, str(HERE / "toy_server.py"))
MARKS = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "CURSOR_AGENT", "OPENCODE", "AI_AGENT")


@pytest.fixture
def a_persons_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for mark in MARKS:
        monkeypatch.delenv(mark, raising=False)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the small server, outside of the project."""
    path = tmp_path / "toy"
    path.mkdir()
    monkeypatch.setenv("TOY", str(path))
    return path


@pytest.fixture
def gateway(project: Path, home: Path) -> Iterator[Callable[..., Wire]]:
    """Start a server behind the gateway."""
    wires: list[Wire] = []

    def start(*server: str, options: tuple[str, ...] = (), **more: Any) -> Wire:
        wires.append(Wire((*GATEWAY, *options, *(("--", *server) if server else ())), cwd=project, **more))
        return wires[-1]

    yield start
    for wire in wires:
        wire.close()


def _or_skip(make: Callable[[], str]) -> str:
    try:
        return make()
    except NotMade as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _npm() -> Path:
    """The servers that come from npm, exactly as their lock file says."""
    home, pins = PLACE / "mcp-npm", HERE / "servers" / "npm"
    PLACE.mkdir(exist_ok=True)
    with (PLACE / "mcp-npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, wanted = home / "made-from", (pins / "package-lock.json").read_text()
        if not stamp.exists() or stamp.read_text() != wanted:
            npm = shutil.which("npm")
            if npm is None:
                raise NotMade("npm is not installed")
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(pins, home)
            done = subprocess.run(
                [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                cwd=home, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            if done.returncode:
                raise NotMade(f"npm ci ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            stamp.write_text(wanted)
    return home / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def filesystem_server() -> str:
    return _or_skip(lambda: str(_npm() / "mcp-server-filesystem"))


@pytest.fixture(scope="session")
def memory_server() -> str:
    return _or_skip(lambda: str(_npm() / "mcp-server-memory"))


def _python_server(name: str) -> str:
    pins = HERE / "servers" / name / "requirements.txt"
    return _or_skip(lambda: str(environment(f"mcp-{name}", pins).with_name(f"mcp-server-{name}")))


@pytest.fixture(scope="session")
def git_server() -> str:
    return _python_server("git")


@pytest.fixture(scope="session")
def sqlite_server() -> str:
    return _python_server("sqlite")
