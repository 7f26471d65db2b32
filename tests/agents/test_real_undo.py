"""The real programs with our real hook: a step is recorded, undone, told to the model; chat and files go back together.

Runs where `claude` or `codex` can be had (docs/testing.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.agents import foreign
from reprieve.agents.machine import Machine
from reprieve.agents.protect import protect_plan
from support import Cli

from .playing import launcher
from .scripted import Model, claude_variables, run, scripted_model
from .test_real_claude import CLAUDE
from .test_real_codex import codex_program

Start = Callable[..., str]


@pytest.fixture
def model() -> Iterator[Model]:
    with scripted_model() as model:
        yield model


def protected(agent: str, tmp_path: Path, project: Path, variables: dict[str, str]) -> dict[str, str]:
    """The agent's environment, with our hook in its configuration."""
    machine = Machine(
        home=str(tmp_path),
        project=str(project),
        platform="linux",
        variables=variables,
        command=(str(launcher(tmp_path / "bin with blank")),),
    )
    for change in protect_plan([agent], "user", machine):
        foreign.apply(change, records=str(tmp_path / "records"))
    ours = {name: os.environ[name] for name in ("REPRIEVE_HOME", "REPRIEVE_CONFIG")}
    return {"HOME": str(tmp_path), **variables, **ours}


@pytest.fixture
def claude(tmp_path: Path, model: Model, project: Path) -> Start:
    variables = protected("claude-code", tmp_path, project, claude_variables(model, tmp_path))

    def start(*words: str) -> str:
        assert CLAUDE is not None
        return run([CLAUDE, "-p", "--allowedTools", "Bash", "--model", "sonnet", *words], project, variables)

    return start


@pytest.fixture
def codex(tmp_path: Path, model: Model, project: Path) -> Start:
    home = tmp_path / "codex"
    home.mkdir()
    (home / "config.toml").write_text(
        'model = "gpt-5"\nmodel_provider = "scripted"\n[model_providers.scripted]\nname = "scripted"\n'
        f'base_url = "{model.url}/v1"\nwire_api = "responses"\n'
    )
    variables = protected("codex", tmp_path, project, {"CODEX_HOME": str(home), "OPENAI_API_KEY": "none"})
    flags = (
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--dangerously-bypass-hook-trust",
    )

    def start(*words: str) -> str:
        return run([codex_program(), "exec", *flags, *words], project, variables)

    return start


def story(start: Start, go_on: tuple[str, ...], resume: tuple[str, ...], model: Model, project: Path, cli: Cli) -> None:
    start("first prompt")
    made = project / "made.txt"
    assert made.read_text() == "hi\n"
    steps = [e for e in cli("log", "--json").json["entries"] if e["step"].startswith("call:")]
    assert [(e["changed"], e["label"]) for e in steps] == [(1, steps[0]["label"])]
    assert "echo hi" in steps[0]["label"]

    cli("undo", "turn", "--yes")
    assert not made.exists()
    start(*go_on, "second prompt")
    assert "deleted: made.txt" in json.dumps(model.asked), "the model is told"
    assert made.exists()

    (conversation,) = cli("rollback", "turn:2", "--conversation", "--yes", "--json").json["conversations"]
    assert not made.exists()
    asked = len(model.asked)
    start(*resume, conversation["command"][-1], "third prompt")
    said = json.dumps(model.asked[asked:])
    assert "first prompt" in said
    assert "third prompt" in said
    assert "second prompt" not in said
    assert made.exists()


@pytest.mark.skipif(CLAUDE is None, reason="claude is not installed")
def test_claude_is_undone_told_and_taken_back(claude: Start, model: Model, project: Path, cli: Cli) -> None:
    story(claude, ("--continue",), ("--resume",), model, project, cli)


def test_codex_is_undone_told_and_taken_back(codex: Start, model: Model, project: Path, cli: Cli) -> None:
    story(codex, ("resume", "--last"), ("resume",), model, project, cli)
