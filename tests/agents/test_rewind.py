"""Files and conversation go back together, by the way that each agent supports; where there is none, that is said."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reprieve.agents import claude_transcript, codex_transcript, rewind
from reprieve.cli.hooking import reply
from reprieve.cli.main import main
from reprieve.errors import Misconfigured
from support import Cli

from .playing import tree
from .recorded import NAMES

FOLDER = Path(__file__).with_name("transcripts")
SESSION = "5f0c1d8e-3b5a-4c61-9d0e-2a7f6b1c9e10"


class Talking:
    """An agent whose transcript we have, reporting the turns and calls that are in it."""

    def __init__(self, agent: str, project: Path, transcript: str) -> None:
        self.agent, self.project, self.transcript = agent, project, transcript
        self.session = SESSION

    def send(self, event: str, **fields: object) -> bytes:
        payload = {
            "session_id": self.session, "cwd": str(self.project), "hook_event_name": event,
            "transcript_path": self.transcript, **fields,
        }  # fmt: skip
        if self.agent == "codex":
            payload |= {"model": "m", "turn_id": fields.get("prompt_id", "")}
        out, err, code = reply([self.agent, event], json.dumps(payload).encode(), os.environ)
        assert (err, code) == (b"", 0)
        return out

    def turn(self, name: str, prompt: str, *calls: str) -> None:
        self.send("UserPromptSubmit", prompt=prompt, prompt_id=name)
        for call in calls:
            tool = {"tool_name": "Bash", "tool_input": {"command": "x"}, "tool_use_id": call, "prompt_id": name}
            self.send("PreToolUse", **tool)
            (self.project / call).write_text(call)
            self.send("PostToolUse", tool_response={}, **tool)


@pytest.fixture
def claude(project: Path, tmp_path: Path) -> Talking:
    """Three turns, each of whose calls made a file of its name."""
    live = tmp_path / "claude" / f"{SESSION}.jsonl"
    live.parent.mkdir()
    live.write_bytes((FOLDER / "claude-code.jsonl").read_bytes())
    talking = Talking("claude-code", project, str(live))
    talking.turn("prompt_1", "Tidy up the build", "toolu_1")
    talking.turn("prompt_2", "Delete what is stale", "toolu_2", "toolu_3")
    talking.turn("prompt_3", "Now run the tests", "toolu_4")
    return talking


def prompts(data: bytes) -> list[str]:
    return [m.text for m in claude_transcript.parse(data).messages if m.is_prompt]


def test_E1_claude_goes_back_with_the_files_into_a_new_session(claude: Talking, project: Path, cli: Cli) -> None:
    live = Path(claude.transcript)
    before = live.read_bytes()
    done = cli("rollback", "turn:2", "--conversation", "--yes")
    assert not (project / "toolu_2").exists()
    assert (project / "toolu_1").exists()
    (made,) = (path for path in live.parent.iterdir() if path != live)
    assert prompts(made.read_bytes()) == ["Tidy up the build"]
    assert f"claude --resume {made.stem}" in done.out
    assert f"claude --resume {SESSION}" in done.out
    assert live.read_bytes() == before
    assert made.stat().st_mode & 0o077 == 0


def test_CT04_nothing_of_the_conversation_is_deleted_not_even_other_branches(claude: Talking, cli: Cli) -> None:
    live = Path(claude.transcript)
    before = live.read_bytes()
    for turn in ("turn:3", "turn:2"):
        cli("rollback", turn, "--conversation-only")
    assert live.read_bytes() == before
    assert len(list(live.parent.iterdir())) == 3


def test_CT06_EC24_files_only_conversation_only_or_both(claude: Talking, project: Path, cli: Cli) -> None:
    live = Path(claude.transcript)
    whole = tree(project)
    answer = cli("rollback", "call:toolu_4", "--conversation-only", "--json").json
    assert tree(project) == whole
    assert answer["conversations"][0]["command"][:2] == ["claude", "--resume"]
    assert prompts(Path(answer["conversations"][0]["path"]).read_bytes())[-1] == "Now run the tests"
    cli("rollback", "call:toolu_4", "--files", "--yes")
    assert not (project / "toolu_4").exists()
    assert len(list(live.parent.iterdir())) == 2
    assert cli("rollback", "turn:1", "--files", "--conversation", check=False).code == 2


def test_a_dry_run_of_both_writes_nothing(claude: Talking, project: Path, cli: Cli) -> None:
    whole = tree(project)
    assert "messages stay" in cli("rollback", "turn:2", "--conversation", "--dry-run").out
    assert tree(project) == whole
    assert len(list(Path(claude.transcript).parent.iterdir())) == 1


def test_a_plain_checkpoint_is_a_point_of_the_conversation_too(claude: Talking, project: Path, cli: Cli) -> None:
    cli("checkpoint", "by hand")
    claude.turn("prompt_4", "Stop; say what you did", "late")
    answer = cli("rollback", "by hand", "--conversation", "--yes", "--json").json
    kept = prompts(Path(answer["conversations"][0]["path"]).read_bytes())
    assert kept == ["Tidy up the build", "Delete what is stale", "Now run the tests"]
    assert not (project / "late").exists()


def test_a_conversation_that_cannot_be_cut_there_leaves_the_files_alone(
    claude: Talking, project: Path, cli: Cli
) -> None:
    """Before the first message nothing is left to resume; and a transcript may be gone."""
    whole = tree(project)
    assert cli("rollback", "turn:1", "--conversation", "--yes", check=False).code == 3
    Path(claude.transcript).unlink()
    done = cli("rollback", "turn:2", "--conversation", "--yes", check=False)
    assert done.code == 3
    assert "--files" in done.err
    assert tree(project) == whole


def test_CT20_files_moved_and_conversation_not_is_said_and_can_be_finished(
    claude: Talking, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: rewind.Rewind) -> rewind.Rewind:
        raise Misconfigured("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(rewind.Rewind, "do", fail)
        assert main(["-C", str(project), "rollback", "turn:2", "--conversation", "--yes"]) == 6
    assert "--conversation-only" in capsys.readouterr().err
    assert not (project / "toolu_2").exists()
    cli("rollback", "turn:2", "--conversation-only")
    assert len(list(Path(claude.transcript).parent.iterdir())) == 2


def test_E1_codex_goes_back_by_whole_turns(project: Path, tmp_path: Path, cli: Cli) -> None:
    live = tmp_path / "sessions" / f"rollout-2026-11-15T10-00-00-{SESSION}.jsonl"
    live.parent.mkdir()
    data = (FOLDER / "codex.jsonl").read_bytes()
    live.write_bytes(data)
    transcript = codex_transcript.parse(data)
    starts = [m for m in transcript.messages if m.is_turn_start]
    calls = [next((c for m in transcript.messages if m.turn == s.turn for c in m.calls), "none") for s in starts]
    talking = Talking("codex", project, str(live))
    talking.session = transcript.session
    for start, call in zip(starts, calls, strict=True):
        talking.turn(str(start.turn), "go on", call)
    answer = cli("rollback", f"call:{calls[1]}", "--conversation", "--yes", "--json").json
    (conversation,) = answer["conversations"]
    assert conversation["command"][:2] == ["codex", "resume"]
    made = codex_transcript.parse(Path(conversation["path"]).read_bytes())
    assert {m.turn for m in made.messages if m.turn} == {starts[0].turn}
    assert not (project / calls[1]).exists()
    assert live.read_bytes() == data


def test_E1_gemini_gets_a_rewind_record_while_it_is_not_running(project: Path, tmp_path: Path, cli: Cli) -> None:
    chat = tmp_path / "session.jsonl"
    lines = [
        {"sessionId": SESSION},
        {"id": "m1", "type": "user", "content": "first"},
        {"id": "m2", "type": "gemini", "content": "ok"},
        {"id": "m3", "type": "user", "content": "second"},
    ]
    chat.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for prompt in ("first", "second"):
        payload = {
            "session_id": SESSION, "cwd": str(project), "hook_event_name": "BeforeAgent", "prompt": prompt,
            "timestamp": "2026-11-15T10:00:00Z", "transcript_path": str(chat),
        }  # fmt: skip
        reply(["gemini", "BeforeAgent"], json.dumps(payload).encode(), os.environ)
    before = chat.read_bytes()
    with chat.open("rb"):
        done = cli("rollback", "turn:2", "--conversation", check=False)
        assert done.code == 5
        assert "running" in done.err
    assert chat.read_bytes() == before
    assert "gemini --resume" in cli("rollback", "turn:2", "--conversation").out
    assert chat.read_bytes() == before + b'{"$rewindTo": "m3"}\n'


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """opencode's own server, as far as forking goes."""
    asked: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

        def do_POST(self) -> None:
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"id": "ses_new"}')

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}", asked
    http.shutdown()
    http.server_close()
    thread.join()


def test_E1_opencode_is_forked_by_its_own_server(
    project: Path, cli: Cli, server: tuple[str, list[tuple[str, Any]]]
) -> None:
    url, asked = server
    for number in (1, 2):
        payload = {
            "sessionID": "ses_1", "messageID": f"msg_{number}", "prompt": "go", "directory": str(project),
            "worktree": str(project), "serverUrl": url,
        }  # fmt: skip
        reply(["opencode", "prompt"], json.dumps(payload).encode(), os.environ)
    assert "opencode --session ses_new" in cli("rollback", "turn:2", "--conversation").out
    assert asked == [("/session/ses_1/fork", {"messageID": "msg_2"})]


@pytest.mark.parametrize(
    "agent", [n for n in NAMES if n not in ("claude-code", "codex", "gemini", "opencode", "crush")]
)
def test_E2_where_an_agent_offers_no_way_it_is_said_and_nothing_is_touched(
    agent: str, project: Path, tmp_path: Path, cli: Cli
) -> None:
    from .playing import Play

    play = Play(agent, project, tmp_path)
    play.send("prompt")
    (project / "after").write_text("x")
    done = cli("rollback", "turn:1", "--conversation", "--everything", check=False)
    assert done.code == 5, done
    assert "--files" in done.err
    assert (project / "after").exists()


def test_without_a_recorded_conversation_that_is_said(project: Path, cli: Cli) -> None:
    cli("checkpoint")
    done = cli("rollback", "--conversation", check=False)
    assert done.code == 3
    assert "no agent's conversation" in done.err


# --- what peers got wrong about turns


def test_CT05_CT21_turns_are_undone_and_redone_one_by_one_in_processes_of_their_own(
    claude: Talking, project: Path, cli: Cli
) -> None:
    whole = tree(project)
    assert "toolu_2" in cli("undo", "turn:2", "--dry-run").out
    assert tree(project) == whole
    states = [whole]
    for turn in ("turn:3", "turn:2", "turn:1"):
        cli("undo", turn, "--yes")
        states.append(tree(project))
    assert not any(name.startswith("toolu") for name in tree(project))
    for state in reversed(states[:-1]):
        cli("redo")
        assert tree(project) == state
    cli("rollback", "turn:2", "--only", "toolu_3", "--yes")
    assert not (project / "toolu_3").exists()
    assert (project / "toolu_2").exists()


def test_turns_are_stepped_back_without_naming_them(claude: Talking, project: Path, cli: Cli) -> None:
    made = [f"toolu_{n}" for n in (4, 3, 2, 1)]
    for gone in (1, 3, 4):
        cli("undo", "turn", "--yes")
        assert [(project / name).exists() for name in made] == [n >= gone for n in range(4)]
    assert cli("undo", "turn", check=False).code == 2
    for _ in range(3):
        cli("redo")
    assert all((project / name).exists() for name in made)


def test_CT19_turns_can_be_undone_after_the_agent_forgot_them(claude: Talking, project: Path, cli: Cli) -> None:
    """Compaction and a restart empty the agent's context, not the timeline."""
    claude.send("SessionStart", source="compact")
    claude.send("SessionEnd", reason="exit")
    claude.send("SessionStart", source="resume")
    claude.turn("prompt_9", "again", "toolu_9")
    cli("undo", "turn:1", "--yes")
    assert not (project / "toolu_1").exists()
    assert (project / "toolu_9").exists()
    assert [e["label"] for e in cli("log", "--json").json["entries"]].count("again") == 1
    cli("undo", "turn:4", "--yes")
    assert not (project / "toolu_9").exists()


def test_CT22_a_rollback_says_that_an_agent_is_in_the_middle_of_something(
    claude: Talking, project: Path, cli: Cli
) -> None:
    claude.send("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="toolu_8", prompt_id="prompt_3")
    done = cli("rollback", "turn:3", "--yes")
    assert "may be in the middle of 'call:toolu_8'" in done.err


def test_EC22_a_turn_is_found_by_its_name_without_asking_a_model(claude: Talking, project: Path, cli: Cli) -> None:
    cli("rollback", "Delete what is stale", "--yes")
    assert not (project / "toolu_2").exists()
    assert (project / "toolu_1").exists()


def test_EC25_names_do_not_shift_and_a_linked_folder_has_one_history(
    claude: Talking, project: Path, tmp_path: Path, cli: Cli
) -> None:
    before = cli("show", "turn:2", "--json").json["entry"]["id"]
    linked = tmp_path / "linked"
    linked.symlink_to(project)
    again = Talking("claude-code", linked, claude.transcript)
    again.turn("prompt_5", "through a link", "toolu_10")
    assert cli("show", "turn:2", "--json").json["entry"]["id"] == before
    assert cli("show", "turn:4", "--json").json["entry"]["label"] == "through a link"
