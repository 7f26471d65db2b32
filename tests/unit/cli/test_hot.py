"""The bytecode of a hook in one file: it is used, and never when the source is another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import SRC

RUN = """
import os, sys
sys.path.insert(0, {source!r})
sys.argv = ["reprieve", "hook", "claude-code", "PreToolUse"]
real = os._exit
def end(code):
    from reprieve.cli.hot import _Loader
    ours = [m for n, m in sys.modules.items() if n.startswith("reprieve")]
    hot = [m.__name__ for m in ours if isinstance(m.__loader__, _Loader)]
    assert all(m.__file__ and os.path.exists(m.__file__) for m in ours)
    sys.stderr.write("\\nHOT " + " ".join(hot))
    sys.stderr.flush()
    real(code)
os._exit = end
from reprieve.cli.entry import run
run()
"""


class Installed:
    """A copy of the package, with bytecode, as an installer leaves it."""

    def __init__(self, place: Path) -> None:
        self.place, self.package = place, place / "reprieve"
        shutil.copytree(SRC / "reprieve", self.package, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.h"))
        compiled = ["-m", "compileall", "-q", str(self.package / "cli"), str(self.package / "app")]
        subprocess.run([sys.executable, *compiled], check=True)

    @property
    def file(self) -> Path:
        return self.package / "__pycache__" / f"hot.{sys.implementation.cache_tag}-{sys.flags.optimize}"

    def hook(self, project: Path, call: int, **variables: str) -> set[str]:
        """What came from the file."""
        payload = {
            "session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_input": {"command": "make"}, "tool_use_id": f"toolu_{call}",
        }  # fmt: skip
        script = [sys.executable, "-S", "-P", "-c", RUN.format(source=str(self.place))]
        done = subprocess.run(
            script,
            cwd=project,
            input=json.dumps(payload).encode(),
            capture_output=True,
            env={**os.environ, **variables},
            check=False,
        )
        self.out = done.stdout
        said, _, names = done.stderr.decode().rpartition("HOT ")
        assert (done.returncode, said.strip()) == (0, ""), done.stderr.decode()
        return set(names.split())


@pytest.fixture
def installed(tmp_path: Path, cli: object, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return Installed(tmp_path / "installed")


def test_the_first_hook_makes_it_and_the_next_one_uses_it(installed: Installed, project: Path) -> None:
    assert not installed.hook(project, 1)
    found = installed.hook(project, 2)
    assert len(found) > 50
    assert {"reprieve.app.hooks", "reprieve.app", "reprieve.files.snapshot"} <= found
    made = installed.file.stat()
    assert installed.hook(project, 3) == found
    assert installed.file.stat().st_mtime_ns == made.st_mtime_ns


def test_a_source_that_changed_is_loaded_anew_though_size_and_time_are_the_same(
    installed: Installed, project: Path
) -> None:
    installed.hook(project, 1)
    source = installed.package / "app" / "hook_folders.py"
    before, text = source.stat(), source.read_text()
    source.write_text(text.replace("def look_ahead(", "def look_aheat("))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    shutil.rmtree(source.parent / "__pycache__")  # an installer replaces these; Python itself would be fooled by them
    assert source.stat().st_size == before.st_size
    assert "reprieve.app.hook_folders" not in installed.hook(project, 2)
    assert b"cannot import name 'look_ahead'" in installed.out


def test_what_was_replaced_removed_or_damaged_is_no_matter(installed: Installed, project: Path) -> None:
    installed.hook(project, 1)
    whole = installed.hook(project, 2)
    source = installed.package / "app" / "hooks.py"
    copy = source.with_name("copy")
    shutil.copy2(source, copy)
    copy.replace(source)
    assert installed.hook(project, 3) == whole - {"reprieve.app.hooks"}
    installed.file.write_bytes(b"RPHOT000" + installed.file.read_bytes()[8:])
    assert not installed.hook(project, 4)
    installed.file.write_bytes(b"")
    assert not installed.hook(project, 5)
    assert len(installed.hook(project, 6)) > 50


def test_it_is_made_only_where_python_may_write_bytecode(installed: Installed, project: Path) -> None:
    installed.hook(project, 1, PYTHONDONTWRITEBYTECODE="1")
    assert not installed.file.exists()


def test_bytecode_that_is_older_than_a_new_source_is_not_taken_over(installed: Installed, project: Path) -> None:
    """In the middle of an installation, with times that were made equal."""
    source = installed.package / "app" / "hooks.py"
    copy = source.with_name("copy")
    shutil.copy2(source, copy)
    copy.replace(source)
    installed.hook(project, 1)
    assert "reprieve.app.hooks" not in installed.hook(project, 2)
