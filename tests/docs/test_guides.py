"""The guides' programs run, and print what the guide says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def program(page: Path) -> tuple[str, str]:
    """All Python of a page as one program, and what it prints according to the page."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n((?:    [^\n]*\n)+))?", text, re.S)
    said = "".join(re.sub(r"^    ", "", printed, flags=re.M) for _, printed in blocks)
    return "\n".join(code for code, _ in blocks), said


@pytest.mark.parametrize("name", ["langgraph.md"])
def test_the_programs_of_a_guide_print_what_it_says(name: str, home: Path, tmp_path: Path) -> None:
    code, expected = program(GUIDES / name)
    assert code and expected
    project = tmp_path / "project"
    project.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env={**os.environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
