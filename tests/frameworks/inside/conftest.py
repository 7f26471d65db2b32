"""The world of an agent under test: a project of files, a workspace on it, and a store that can be made unusable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reprieve
from reprieve.model.timeline import TimelineEntry
from reprieve.model.window import standing

_called_out: list[str] = []


def _watch(event: str, args: tuple[Any, ...]) -> None:
    """Stop whoever asks for another machine: a framework's telemetry, a model's real address."""
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    text = host.decode() if isinstance(host, bytes) else host
    if text not in (None, "", "localhost", "127.0.0.1", "::1"):
        _called_out.append(text)
        raise PermissionError(f"a test asked for {text}")


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def only_loopback() -> Iterator[None]:
    """A framework that swallows the error is found out here."""
    yield
    asked, _called_out[:] = list(_called_out), []
    assert asked == []


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store, no user configuration, no resident helper, and no key by which a framework might call out."""
    monkeypatch.setenv("REPRIEVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REPRIEVE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("REPRIEVE_HELPER", "off")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "REPRIEVE_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "notes.txt").write_text("one\n")
    (root / "src" / "main.py").write_text("print('hello')\n")
    (root / "data.bin").write_bytes(bytes(range(256)) * 4)
    (root / ".env").write_text("TOKEN=secret\n")
    return root


class Desk:
    """A project with a workspace on it."""

    def __init__(self, ws: reprieve.Workspace, root: Path, home: Path) -> None:
        self.ws, self.root, self.home = ws, root, home
        self.ran: list[str] = []  # what tools were really called with

    def contents(self) -> dict[str, bytes]:
        """Every file, by its path."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}

    def write(self, path: str, text: str) -> str:
        self.ran.append(f"write {path}")
        (self.root / path).write_text(text)
        return f"wrote {path}"

    def delete(self, path: str) -> str:
        self.ran.append(f"delete {path}")
        (self.root / path).unlink()
        return f"deleted {path}"

    def stumble(self, path: str) -> str:
        """Begins and fails."""
        self.ran.append(f"stumble {path}")
        (self.root / path).write_text("half of it")
        raise OSError("the tool broke off")

    def note(self, what: str) -> None:
        """Called by a tool: an effect that is recorded in the step that the tool runs in."""
        self.ws.remember(what, None, what, set=lambda _: None)

    def noted(self) -> dict[str, str]:
        """In which step each note was made."""
        return {effect.resource.rpartition("/")[2]: effect.step for effect in self.ws.effects()}

    def spoil(self) -> None:
        """Make the store unusable for real: its database is no database any more."""
        (self.home / "store.db").write_bytes(b"not a database at all" * 400)

    def left_open(self) -> list[str]:
        """Steps that have no end yet."""
        newest = next(entry for entry in self.ws.log() if entry.kind == "checkpoint")
        return [window.step for window in standing(newest.data).open]

    def step(self, label: str) -> tuple[TimelineEntry, TimelineEntry]:
        """The newest step of that label: the checkpoint before it, and the one that sealed it."""
        entries = list(self.ws.log())
        before = next(entry for entry in entries if entry.label == f"before {label}")
        return before, next(entry for entry in entries if entry.label.removesuffix(" (failed)") == label)

    def labels(self) -> list[str]:
        """Of what was sealed, oldest first."""
        entries = [entry for entry in self.ws.log() if entry.kind == "checkpoint"]
        return [entry.label for entry in reversed(entries) if not entry.label.startswith("before ")]


@pytest.fixture
def desk(project: Path, home: Path) -> Iterator[Desk]:
    with reprieve.open(project) as ws:
        yield Desk(ws, project, home)
