"""A test that is skipped because a program is missing fails in CI, and is skipped elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPED = """
import shutil
import pytest

@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
def test_by_mark():
    pass

@pytest.fixture
def compiler():
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler to build the shim with")

def test_by_fixture(compiler):
    pass

def test_within():
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")

def test_for_another_reason():
    pytest.skip("root reads everything")
"""


@pytest.mark.parametrize(("ci", "end"), [("true", "1 failed, 1 skipped, 2 errors in "), ("", "4 skipped in ")])
def test_a_skip_for_a_missing_program_is_a_failure_in_ci(tmp_path: Path, ci: str, end: str) -> None:
    (tmp_path / "conftest.py").write_text("from support.required import pytest_runtest_makereport\n")
    (tmp_path / "test_some.py").write_text(SKIPPED)
    tests = Path(__file__).resolve().parents[1]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        env=environ | {"CI": ci, "PATH": str(tmp_path), "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.splitlines()[-1].startswith(end), ran.stdout
    assert ("git is missing, and CI must have it (Skipped: git is the oracle)" in ran.stdout) == bool(ci)


def test_what_ci_must_have_is_what_the_test_command_installs() -> None:
    from support.required import PROGRAMS

    script = (Path(__file__).resolve().parents[2] / "test").read_text()
    assert [name for name in PROGRAMS if f"[{name}]=" not in script] == ["node"]  # npm brings it
    if os.environ.get("CI"):
        assert [name for name in PROGRAMS if shutil.which(name) is None] == []
