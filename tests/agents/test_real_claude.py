"""Claude Code itself, driven by a scripted model: it runs our hooks, heeds a refusal, resumes a session that we forked.

Runs where `claude` is on the PATH, REPRIEVE_TEST_CLAUDE names it, or `claude-agent-sdk`, which brings one, is installed
(docs/testing.md).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.agents import claude_transcript, foreign
from reprieve.agents.machine import Machine
from reprieve.agents.protect import protect_plan
from reprieve.agents.transcript import cut_before

from .scripted import COMMAND, Model, StandIn, claude_variables, run, scripted_model


def _program() -> str | None:
    named = os.environ.get("REPRIEVE_TEST_CLAUDE") or shutil.which("claude")
    spec = importlib.util.find_spec("claude_agent_sdk")
    if named is None and spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "_bundled" / "claude"
        named = str(bundled) if bundled.exists() else None
    return named


CLAUDE = _program()
pytestmark = pytest.mark.skipif(CLAUDE is None, reason="claude is not installed")


@pytest.fixture
def model() -> Iterator[Model]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def claude(tmp_path: Path, model: Model, project: Path) -> Callable[..., str]:
    variables = claude_variables(model, tmp_path)

    def start(*words: str) -> str:
        assert CLAUDE is not None
        return run([CLAUDE, "-p", "--allowedTools", "Bash", "--model", "sonnet", *words], project, variables)

    return start


@pytest.fixture
def hook(tmp_path: Path, project: Path) -> StandIn:
    """Our hooks, installed."""
    hook = StandIn(tmp_path / "bin with blank")
    machine = Machine(
        home=str(tmp_path),
        project=str(project),
        platform="linux",
        variables={"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")},
        command=(str(hook.path),),
    )
    for change in protect_plan(["claude-code"], "user", machine):
        foreign.apply(change, records=str(tmp_path / "records"))
    return hook


def turns(model: Model) -> list[str]:
    """What the main conversation sent, as text; side questions (titles and the like) left out."""
    return [str(asked["messages"]) for asked in model.asked if any(t.get("name") == "Bash" for t in asked["tools"])]


def test_claude_calls_us_before_and_after_every_tool(
    claude: Callable[..., str], hook: StandIn, project: Path, model: Model
) -> None:
    hook.answer({"prompt": {"note": "3 files were rolled back"}})
    claude("make a file")
    assert (project / "made.txt").exists()
    calls = hook.calls()
    kinds = [c["kind"] for c in calls]
    assert kinds[:4] == ["session_start", "prompt", "before", "after"]
    assert "turn_end" in kinds
    assert {c["agent"] for c in calls} == {"claude-code"}
    assert len({c["session"] for c in calls}) == 1
    assert calls[1]["prompt"] == "make a file"
    assert (calls[2]["tool"], calls[2]["command"], calls[2]["cwd"]) == ("Bash", COMMAND, str(project))
    assert calls[2]["call_id"] == calls[3]["call_id"] is not None
    assert "3 files were rolled back" in turns(model)[0]


def test_claude_heeds_a_refusal_and_tells_its_model_why(
    claude: Callable[..., str], hook: StandIn, project: Path, model: Model
) -> None:
    hook.answer({"before": {"decision": "deny", "reason": "Reprieve: there is no way back from this"}})
    claude("make a file")
    assert not (project / "made.txt").exists()
    assert "there is no way back from this" in turns(model)[-1]


@pytest.mark.parametrize("script", ["", "kill -9 $$", "exit 70"], ids=["uninstalled", "killed", "broken"])
def test_claude_runs_nothing_where_our_program_is_gone_or_does_not_answer(
    script: str, claude: Callable[..., str], hook: StandIn, project: Path, model: Model
) -> None:
    """The prompt goes through, the call doesn't, and the model learns why."""
    hook.path.unlink()
    if script:
        hook.path.write_text(f"#!/bin/sh\n{script}\n")
        hook.path.chmod(0o755)
    claude("make a file")
    assert not (project / "made.txt").exists()
    said = turns(model)[-1]
    assert ("its hook is still in" if not script else "Blocked by Reprieve") in said


def test_claude_resumes_a_session_that_we_forked(claude: Callable[..., str], tmp_path: Path, model: Model) -> None:
    claude("first prompt")
    claude("--continue", "second prompt")
    (live,) = (p for p in (tmp_path / "claude" / "projects").rglob("*.jsonl") if p.parent.name != "subagents")
    before = live.read_bytes()
    transcript = claude_transcript.parse(before)
    prompts = [i for i, m in enumerate(transcript.messages) if m.is_prompt]
    second = next(i for i in prompts if "second prompt" in transcript.messages[i].text)
    keep = cut_before(transcript, second)
    fork = claude_transcript.fork(
        transcript, keep, title="rolled back", now="2026-11-15T12:00:00.000Z", new_id=lambda: str(uuid.uuid4())
    )
    (live.parent / fork.file_name).write_bytes(fork.data)
    claude("--resume", fork.session, "third prompt")
    said = turns(model)[-1]
    assert "first prompt" in said
    assert "third prompt" in said
    assert "second prompt" not in said
    assert live.read_bytes() == before
