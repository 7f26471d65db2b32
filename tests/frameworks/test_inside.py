"""Each adapter with its real framework and a scripted model: the tests under inside/, in the environment they need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from frameworks.environments import INSIDE, environment_for_a_test, inside

FILES = sorted(INSIDE.glob("*/test_*.py"))


@pytest.mark.parametrize("tests", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def test_with_the_real_framework(tests: Path) -> None:
    command, environ = inside(environment_for_a_test(tests.parent.name), tests)
    done = subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    last = done.stdout.rstrip().rpartition("\n")[2]
    if done.returncode or not re.search(r"\d+ passed", last) or re.search(r"skipped|deselected", last):
        pytest.fail(done.stdout, pytrace=False)
