"""The world of an agent under test: a project of files, a workspace on it, and a store that can be made unusable."""

from __future__ import annotations

from pathlib import Path

import pytest


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
