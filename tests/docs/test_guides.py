"""The guides' programs run, and print what the guide says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents.scripted import claude_variables, scripted_model
from frameworks.environments import environment_for_a_test

# Each guide, and the environment that its framework is in (tests/frameworks/inside), if it needs one
RUN_IN = {
    "adk.md": "shared",
    "claude-sdk.md": "shared",
    "langchain.md": "shared",
    "langgraph.md": "",
    "plain-loop.md": "",
    "plan-with-replan.md": "",
    "openai-agents.md": "shared",
    "pydantic-ai.md": "shared",
}
GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def program(page: Path) -> tuple[str, str]:
    """All Python of a page as one program, and what it prints according to the page."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n((?:    [^\n]*\n)+))?", text, re.S)
    said = "".join(re.sub(r"^    ", "", printed, flags=re.M) for _, printed in blocks)
    return "\n".join(code for code, _ in blocks), said


@pytest.mark.parametrize("name", RUN_IN)
def test_the_programs_of_a_guide_print_what_it_says(
    name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, expected = program(GUIDES / name)
    assert code and expected
    python = str(environment_for_a_test(RUN_IN[name])) if RUN_IN[name] else sys.executable
    project = tmp_path / "project"
    project.mkdir()
    with scripted_model() as model:
        for variable in [each for each in os.environ if each.startswith(("ANTHROPIC_", "CLAUDE", "OPENAI_"))]:
            monkeypatch.delenv(variable)
        for variable, value in claude_variables(model, tmp_path).items():
            monkeypatch.setenv(variable, value)
        done = subprocess.run(
            [python, "-c", code], cwd=project, env={**os.environ}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
