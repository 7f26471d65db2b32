"""The worlds that tests live in: an empty store, a small project, and the command line as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import SRC, Cli, Result, age
from support.helper import BY_HELPER, launched, stop_helper, wait_for_helper
from support.required import pytest_runtest_makereport  # noqa: F401 - a hook
from support.summary import pytest_terminal_summary  # noqa: F401 - a hook

# Examples are judged by what they find, not by how busy the machine is
settings.register_profile("reprieve", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("reprieve")


# A shell starts what runs in the background with Ctrl-C and Ctrl-\\ ignored, nohup ignores SIGHUP, and children inherit
# that: tests that send them need them heard, however pytest was started.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """As they were: the command line ignores them once it says its last words, and may have run in this process.

    What a later test starts would inherit that, and could not be interrupted.
    """
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    yield
    for number, handler in before:
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty REPRIEVE_HOME (not made yet) and no user configuration; the environment points at both."""
    path = tmp_path / "home"
    monkeypatch.setenv("REPRIEVE_HOME", str(path))
    monkeypatch.setenv("REPRIEVE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("REPRIEVE_HELPER", "off")  # no process is to outlive a test
    for name in ("REPRIEVE_DEBUG", "REPRIEVE_DISABLED", "NO_COLOR", "FORCE_COLOR", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{SRC}{os.pathsep}{inherited}" if inherited else str(SRC))
    return path


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    """A small tree with one of everything that people lose: text, binary, ignored, empty, executable, link."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "README.md").write_text("# A project\n\nIt does things.\n")
    (root / "src").mkdir()
    (root / "src" / "main.py").write_text("def main():\n    print('hello')\n\n\nmain()\n")
    (root / "src" / "util.py").write_text("ANSWER = 42\n")
    (root / "data.bin").write_bytes(bytes(range(256)) * 16)
    (root / "no-newline.txt").write_text("the last line has no end")
    (root / ".gitignore").write_text(".env\nbuild/\n")
    (root / ".env").write_text("TOKEN=secret\n")
    (root / ".env").chmod(0o600)
    (root / "empty").mkdir()
    (root / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (root / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("src/main.py")
    age(root)
    return root


@pytest.fixture
def cli(project: Path, home: Path) -> Iterator[Cli]:
    """`reprieve` as a process of its own, in the project unless cwd says otherwise.

    With REPRIEVE_TEST_HELPER=1 the installed command, answered by the resident helper where that is possible.
    """

    def run(
        *args: str | bytes,
        cwd: Path | str | None = None,
        input: str | None = None,
        env: Mapping[str, str | None] | None = None,
        check: bool = True,
        timeout: float = 120,
    ) -> Result:
        environ = {k: v for k, v in {**os.environ, **(env or {})}.items() if v is not None}
        program = [sys.executable, "-m", "reprieve"]
        if BY_HELPER and not any(name.startswith("PYTHON") for name in env or ()):
            program, environ = [str(launched())], {k: v for k, v in environ.items() if not k.startswith("PYTHON")}
            if not env or "REPRIEVE_HELPER" not in env:
                environ |= {"REPRIEVE_HELPER": "on", "REPRIEVE_HELPER_IDLE": "5"}
        done = subprocess.run(
            [*program, *args],
            cwd=cwd or project,
            env=environ,
            input=(input or "").encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        result = Result(
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )
        if BY_HELPER and result.code == 0:
            wait_for_helper(home)
        if check and result.code != 0:
            pytest.fail(f"reprieve {args!r} ended with {result.code}\n--- out\n{result.out}\n--- err\n{result.err}")
        return result

    yield run
    if BY_HELPER:
        stop_helper(home)
