"""The environments that frameworks are tested in: one folder under inside/ each, with its pins and its tests.

Frameworks ask for versions that exclude each other, and none of them belongs to the environment that everything else is
tested in. An environment is made when the first test needs it, in .venv-frameworks/NAME of the clone, exactly from
inside/NAME/requirements.txt, which `python tests/frameworks/environments.py lock` makes from requirements.in.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

INSIDE = Path(__file__).resolve().with_name("inside")
REPOSITORY = INSIDE.parents[2]
PLACE = REPOSITORY / ".venv-frameworks"
NAMES = sorted(path.parent.name for path in INSIDE.glob("*/requirements.in"))


class NotMade(Exception):
    """An environment could not be made; says what its installer said."""


def environment(name: str, pins: Path | None = None) -> Path:
    """The Python of an environment, made anew if its pins have changed. Waits for whoever is making it already."""
    pins = pins or INSIDE / name / "requirements.txt"
    wanted = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    home = PLACE / name
    stamp, python = home / "made-from", home / "bin" / "python"
    PLACE.mkdir(exist_ok=True)
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(home))
            _uv("pip", "sync", "--quiet", "--python", str(python), str(pins))
            stamp.write_text(wanted)
    return python


def environment_for_a_test(name: str) -> Path:
    """The same; the test that asks is skipped where it cannot be made, except in CI."""
    import pytest

    try:
        return environment(name)
    except NotMade as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def inside(python: Path, tests: Path, *options: str) -> tuple[list[str], dict[str, str]]:
    """The command and the variables by which that Python runs the tests of one file; reprieve comes from src/."""
    settings = ("-c", str(INSIDE / "pytest.ini"), "--confcutdir", str(INSIDE), "-p", "no:cacheprovider")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [str(python), "-m", "pytest", "-q", "--tb=short", *settings, *options, str(tests)]
    return command, environ | {"PYTHONPATH": str(REPOSITORY / "src")}


def _uv(*args: str) -> None:
    """By the machine's certificates, as pip: uv's own list knows of no company's."""
    own = {"UV_HTTP_TIMEOUT": "180", "UV_SYSTEM_CERTS": "true"}
    environ = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | own
    done = subprocess.run(
        [find_uv_bin(), *args], cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotMade(f"uv {' '.join(args)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def main(verb: str, *args: str) -> None:
    match verb:
        case "lock":
            options = ("--quiet", "--universal", "--python-version", "3.11", "--no-header", "--no-annotate")
            for name in args or NAMES:
                pins = (INSIDE / name).relative_to(REPOSITORY)
                _uv("pip", "compile", *options, f"{pins}/requirements.in", "-o", f"{pins}/requirements.txt")
        case "make":
            for name in args or NAMES:
                print(environment(name))
        case "run":
            (tests,) = INSIDE.glob(f"*/test_*{args[0]}*.py")
            command, environ = inside(environment(tests.parent.name), tests, *args[1:])
            os.execve(command[0], command, environ)
        case _:
            raise SystemExit(f"{verb!r} is none of lock [NAME…], make [NAME…], run FILE [OPTIONS…]")


if __name__ == "__main__":
    main(*sys.argv[1:])
