"""Claude's own SDK reads the sessions that we fork. Runs where `claude-agent-sdk` is installed (docs/testing.md)."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from reprieve.agents import claude_transcript
from reprieve.agents.transcript import cut_before, find, legal_cuts

sdk = pytest.importorskip("claude_agent_sdk", exc_type=ImportError)

TRANSCRIPT = Path(__file__).with_name("transcripts") / "claude-code.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Claude home with the recorded session in the place of a project."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    project = tmp_path / "project"
    project.mkdir()
    folder = tmp_path / "claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(project.resolve()))
    folder.mkdir(parents=True)
    (folder / "5f0c1d8e-3b5a-4c61-9d0e-2a7f6b1c9e10.jsonl").write_bytes(TRANSCRIPT.read_bytes())
    return folder


def test_a_forked_session_is_listed_and_its_messages_are_those_that_were_kept(folder: Path, tmp_path: Path) -> None:
    project = str(tmp_path / "project")
    transcript = claude_transcript.parse(TRANSCRIPT.read_bytes())
    live = folder / f"{transcript.session}.jsonl"
    before = live.read_bytes()
    keep = cut_before(transcript, find(transcript, turn="prompt_3"))
    fork = claude_transcript.fork(
        transcript,
        keep,
        title="Tidy up (rolled back)",
        now="2026-11-15T12:00:00.000Z",
        new_id=lambda: str(uuid.uuid4()),
    )
    (folder / fork.file_name).write_bytes(fork.data)
    sessions = {info.session_id: info for info in sdk.list_sessions(directory=project)}
    assert set(sessions) == {transcript.session, fork.session}
    assert sessions[fork.session].summary == "Tidy up (rolled back)"
    messages = sdk.get_session_messages(fork.session, directory=project)
    said = [m.message["content"] for m in messages if m.type == "user" and isinstance(m.message["content"], str)]
    assert said == ["Tidy up the build", "Delete what is stale"]
    assert live.read_bytes() == before


def test_every_legal_cut_reads_back_with_all_its_pairs(folder: Path, tmp_path: Path) -> None:
    project = str(tmp_path / "project")
    transcript = claude_transcript.parse(TRANSCRIPT.read_bytes())
    for keep in legal_cuts(transcript.messages)[1:]:
        fork = claude_transcript.fork(
            transcript, keep, title="t", now="2026-11-15T12:00:00.000Z", new_id=lambda: str(uuid.uuid4())
        )
        (folder / fork.file_name).write_bytes(fork.data)
        messages = sdk.get_session_messages(fork.session, directory=project)
        assert len(messages) == keep
        blocks = [b for m in messages if isinstance(m.message["content"], list) for b in m.message["content"]]
        calls = {b["id"] for b in blocks if b["type"] == "tool_use"}
        assert calls == {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}


def test_our_fork_keeps_what_the_sdks_own_fork_keeps(folder: Path, tmp_path: Path) -> None:
    """Where the SDK is there it can do the work; where not, ours gives the same conversation."""
    project = str(tmp_path / "project")
    transcript = claude_transcript.parse(TRANSCRIPT.read_bytes())
    keep = cut_before(transcript, find(transcript, turn="prompt_2"))
    fork = claude_transcript.fork(
        transcript, keep, title="t", now="2026-11-15T12:00:00.000Z", new_id=lambda: str(uuid.uuid4())
    )
    (folder / fork.file_name).write_bytes(fork.data)
    theirs = sdk.fork_session(transcript.session, directory=project, up_to_message_id=fork.last_message)
    ours_said = [m.message for m in sdk.get_session_messages(fork.session, directory=project)]
    theirs_said = [m.message for m in sdk.get_session_messages(theirs.session_id, directory=project)]
    assert ours_said == theirs_said
