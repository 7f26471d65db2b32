"""The README says what happens: its transcript is run again, its links lead somewhere, its commands exist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", ["README.md", "docs/guides/keep-your-own-work.md"])
def test_the_transcript_is_fresh(page: str) -> None:
    spec = importlib.util.spec_from_file_location("transcript", ROOT / "docs" / "transcript.py")
    assert spec is not None and spec.loader is not None
    transcript = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(transcript)
    assert set(transcript.STORIES) >= {ROOT / page}
    text = (ROOT / page).read_text(encoding="utf-8")
    fresh = transcript.with_transcript(text, transcript.run(transcript.STORIES[ROOT / page]))
    assert text == fresh, "make it anew: python docs/transcript.py"


def test_the_guides_transcript_keeps_what_it_says() -> None:
    """The agent's rewrite is gone; the person's line and file are there."""
    shown = (ROOT / "docs" / "guides" / "keep-your-own-work.md").read_text(encoding="utf-8")
    last = shown.split("$ reprieve rollback")[1].split("```")[0]
    assert '+    return f"{price:.2f} €"' in last and "kept      notes.md: changed by you" in last
    assert "Decimal" not in last and last.endswith("$ ls\nnotes.md\nprices.py\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


def test_the_two_commands_are_there_and_executable() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("try", "test"):
        assert f"\n    ./{name} " in readme
        assert os.access(ROOT / name, os.X_OK)
    assert "./test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_command_is_installed_as_a_plain_script() -> None:
    """An entry point made by pip imports `re`, which every call would pay."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert setuptools["script-files"] == ["bin/reprieve"]
    assert (ROOT / "bin" / "reprieve").read_text(encoding="utf-8").startswith("#!python\n")


@pytest.mark.parametrize("script", ["try", "test", ".ci/run"])
def test_the_scripts_are_valid(script: str) -> None:
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_the_first_command_keeps_its_word(home: Path, tmp_path: Path) -> None:
    """What ./try runs after installing: it checks every byte itself and fails if one is wrong."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "reprieve"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m reprieve \"$@\"\n")
    script.chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "try_it.py"],
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nok    ") == 6
    assert "For a folder of yours:" in done.stdout


def test_wb_30_every_command_that_the_documents_name_is_there() -> None:
    """No claim without code: what a page tells people to type exists."""
    from reprieve.cli import catalog

    root = Path(__file__).resolve().parents[2]
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("docs/guides/*.md")]
    named = set()
    for page in pages:
        for word in re.findall(
            r"(?:`|\$ |^|: )reprieve ([a-z][a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            named.add((word, page.name))
    assert len(named) > 30
    named -= {("intent", "format.md")}  # the first words of a record, not a command
    assert not [each for each in sorted(named) if each[0] not in catalog.NAMES]
