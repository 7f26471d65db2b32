"""What `pip install` puts there: the launcher where there is a compiler, else the script, and both do the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from support import SRC

ROOT = SRC.parent
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REPRIEVE_"))}


def wheel(folder: Path, **variables: str) -> Path:
    """A wheel of the working tree. Skips where pip cannot get what it needs to build one."""
    source = folder / "source"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "*.so", "__pycache__", ".*_cache", "tests")
    shutil.copytree(ROOT, source, ignore=ignored)
    argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "-w", folder, source]
    done = subprocess.run(argv, env={**CLEAN, **variables}, capture_output=True, text=True, check=False)
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("setuptools cannot be had here")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


def installed(folder: Path, wheel: Path) -> Path:
    """Its bin, in an environment of its own that shares our dependencies."""
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    python = folder / "venv" / "bin" / "python"
    argv = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run([*argv, "--disable-pip-version-check"], env=CLEAN, check=True, capture_output=True)
    (packages / "dependencies.pth").write_text(f"{ours}\n")
    return folder / "venv" / "bin"


def says_its_version(program: Path) -> bool:
    done = subprocess.run([program, "--version"], env=CLEAN, capture_output=True, text=True, check=False)
    return done.stdout.startswith("reprieve 0.") and done.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is no launcher")
def test_with_a_compiler_it_is_the_launcher_with_the_script_beside_it(tmp_path: Path) -> None:
    if not shutil.which("cc") and not shutil.which("gcc"):
        pytest.skip("there is no compiler")
    made = wheel(tmp_path)
    assert not [name for name in zipfile.ZipFile(made).namelist() if name.endswith((".c", ".h"))]
    programs = installed(tmp_path, made)
    assert (programs / "reprieve").read_bytes().startswith(b"\x7fELF")
    assert (programs / "reprieve-python").read_text().startswith(f"#!{programs}/python")
    assert says_its_version(programs / "reprieve") and says_its_version(programs / "reprieve-python")
    (tmp_path / "link").symlink_to(programs / "reprieve")
    assert says_its_version(tmp_path / "link")


@pytest.mark.slow
def test_without_a_compiler_it_is_the_script(tmp_path: Path) -> None:
    programs = installed(tmp_path, wheel(tmp_path, CC="false"))
    assert (programs / "reprieve").read_text().startswith(f"#!{programs}/python")
    assert not (programs / "reprieve-python").exists()
    assert says_its_version(programs / "reprieve")


def test_a_launcher_alone_says_what_is_missing(tmp_path: Path) -> None:
    from support.helper import launched

    shutil.copy(launched(), tmp_path / "reprieve")
    done = subprocess.run([tmp_path / "reprieve", "status"], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert done.stderr == (
        f"Error: cannot start '{tmp_path}/reprieve-python': No such file or directory\nHint: install reprieve again\n"
    )
