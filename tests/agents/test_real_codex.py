"""Codex itself, driven by a scripted model: it runs our hooks, heeds a refusal, and resumes a session that we forked.

The program is the one on the PATH, the one that REPRIEVE_TEST_CODEX names, or is installed (docs/testing.md).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.agents import codex_transcript, foreign
from reprieve.agents.machine import Machine
from reprieve.agents.protect import protect_plan
from support.node import program

from .scripted import COMMAND, Model, StandIn, run, scripted_model


def codex_program() -> str:
    return os.environ.get("REPRIEVE_TEST_CODEX") or shutil.which("codex") or program("codex", "codex")


@pytest.fixture
def model() -> Iterator[Model]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def codex(tmp_path: Path, model: Model, project: Path) -> Callable[..., str]:
    home = tmp_path / "codex"
    home.mkdir()
    (home / "config.toml").write_text(
        'model = "gpt-5"\nmodel_provider = "scripted"\n[model_providers.scripted]\nname = "scripted"\n'
        f'base_url = "{model.url}/v1"\nwire_api = "responses"\n'
    )
    variables = {"CODEX_HOME": str(home), "HOME": str(tmp_path), "OPENAI_API_KEY": "none"}

    def start(*words: str) -> str:
        flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
        return run([codex_program(), "exec", *flags, *words], project, variables)

    return start


@pytest.fixture
def hook(tmp_path: Path, codex: Callable[..., str], project: Path) -> StandIn:
    """Our hooks, installed."""
    hook = StandIn(tmp_path / "bin with blank")
    machine = Machine(
        home=str(tmp_path),
        project=str(project),
        platform="linux",
        variables={"CODEX_HOME": str(tmp_path / "codex")},
        command=(str(hook.path),),
    )
    for change in protect_plan(["codex"], "user", machine):
        foreign.apply(change, records=str(tmp_path / "records"))
    return hook


def test_codex_calls_us_before_and_after_every_tool(
    codex: Callable[..., str], hook: StandIn, project: Path, model: Model
) -> None:
    hook.answer({"prompt": {"note": "3 files were rolled back"}})
    codex("--dangerously-bypass-hook-trust", "make a file")
    assert (project / "made.txt").exists()
    calls = hook.calls()
    assert [c["kind"] for c in calls] == ["session_start", "prompt", "before", "after", "turn_end"]
    assert {c["agent"] for c in calls} == {"codex"}
    assert len({c["session"] for c in calls}) == 1
    assert calls[1]["prompt"] == "make a file"
    assert (calls[2]["tool"], calls[2]["command"]) == ("Bash", COMMAND)
    assert calls[2]["call_id"] == calls[3]["call_id"] is not None
    assert len({c["turn"] for c in calls[1:]}) == 1
    assert Path(calls[0]["transcript_path"]).exists()
    assert "3 files were rolled back" in str(model.asked[0]["input"])


@pytest.mark.parametrize("decision", ["deny", "ask"])
def test_codex_heeds_a_refusal_and_tells_its_model_why(
    decision: str, codex: Callable[..., str], hook: StandIn, project: Path, model: Model
) -> None:
    """It has no way to ask; a refusal is all that stops it."""
    hook.answer({"before": {"decision": decision, "reason": "Reprieve: there is no way back from this"}})
    codex("--dangerously-bypass-hook-trust", "make a file")
    assert not (project / "made.txt").exists()
    assert "there is no way back from this" in str(model.asked[-1]["input"])


@pytest.mark.parametrize("script", ["", "kill -9 $$", "exit 70"], ids=["uninstalled", "killed", "broken"])
def test_codex_runs_nothing_where_our_program_is_gone_or_does_not_answer(
    script: str, codex: Callable[..., str], hook: StandIn, project: Path, model: Model
) -> None:
    """The prompt goes through, the call doesn't, and the model learns why."""
    hook.path.unlink()
    if script:
        hook.path.write_text(f"#!/bin/sh\n{script}\n")
        hook.path.chmod(0o755)
    codex("--dangerously-bypass-hook-trust", "make a file")
    assert not (project / "made.txt").exists()
    said = str(model.asked[-1]["input"])
    assert ("its hook is still in" if not script else "Blocked by Reprieve") in said


def test_codex_resumes_a_session_that_we_forked(codex: Callable[..., str], tmp_path: Path, model: Model) -> None:
    codex("first prompt")
    codex("resume", "--last", "second prompt")
    (live,) = (tmp_path / "codex" / "sessions").rglob("*.jsonl")
    before = live.read_bytes()
    transcript = codex_transcript.parse(before)
    second = [i for i, m in enumerate(transcript.messages) if m.is_turn_start][1]
    keep = codex_transcript.turn_cut(transcript, second)
    fork = codex_transcript.fork(transcript, keep, now="2026-11-15T12:00:00.000Z", new_id=lambda: str(uuid.uuid4()))
    (live.parent / fork.file_name).write_bytes(fork.data)
    codex("resume", fork.session, "third prompt")
    said = str(model.asked[-2]["input"])
    assert "first prompt" in said
    assert "third prompt" in said
    assert "second prompt" not in said
    calls = {i["call_id"] for i in model.asked[-2]["input"] if i["type"] == "function_call"}
    assert calls == {i["call_id"] for i in model.asked[-2]["input"] if i["type"] == "function_call_output"}
    assert live.read_bytes() == before
