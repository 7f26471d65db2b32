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


def test_a_message_whose_first_call_stays_done_goes_whole_and_that_is_said(
    claude: Talking, project: Path, cli: Cli
) -> None:
    """Claude made both calls in one message and ran them one after the other: no chat knows of one of them alone."""
    done = cli("rollback", "call:toolu_3", "--conversation", "--yes")
    assert (project / "toolu_2").exists()
    assert not (project / "toolu_3").exists()
    assert "goes back to before the message of that call, further than the files: " in done.out
    for call, is_whole in (("toolu_2", False), ("toolu_3", True), ("toolu_4", False)):
        (said,) = cli("rollback", f"call:{call}", "--conversation-only", "--json").json["conversations"]
        assert said["is_whole_message"] == is_whole, call
        assert not said["is_whole_turn"]


def test_a_message_whose_calls_ran_together_goes_as_far_as_the_files(project: Path, tmp_path: Path, cli: Cli) -> None:
    live = tmp_path / f"{SESSION}.jsonl"
    live.write_bytes((FOLDER / "claude-code.jsonl").read_bytes())
    talking = Talking("claude-code", project, str(live))
    talking.turn("prompt_1", "Tidy up the build", "toolu_1")
    talking.send("UserPromptSubmit", prompt="Delete what is stale", prompt_id="prompt_2")
    tools = [{"tool_name": "Bash", "tool_input": {"command": c}, "tool_use_id": c} for c in ("toolu_2", "toolu_3")]
    for tool in tools:
        talking.send("PreToolUse", prompt_id="prompt_2", **tool)
    for tool in tools:
        (project / str(tool["tool_use_id"])).write_text("x")
        talking.send("PostToolUse", prompt_id="prompt_2", tool_response={}, **tool)
    done = cli("rollback", "call:toolu_3", "--conversation", "--yes")
    assert not (project / "toolu_2").exists()
    assert "further" not in done.out


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


class Typing(Talking):
    """A Claude that writes its transcript as it goes."""

    last: str | None = None
    count = 0

    def line(self, kind: str, content: object, **more: object) -> None:
        self.count += 1
        uuid = f"{self.count:08d}-0000-4000-8000-000000000000"
        message = {"role": kind, "content": content} | ({"id": f"msg_{self.count}"} if kind == "assistant" else {})
        with open(self.transcript, "a") as file:
            line = {"type": kind, "uuid": uuid, "parentUuid": self.last, "sessionId": self.session, "message": message}
            file.write(json.dumps({**line, "isSidechain": False, **more}) + "\n")
        self.last = uuid

    def call(self, name: str, **more: object) -> None:
        """In the main conversation, or as a sub-agent, whose calls are not part of it."""
        tool = {"tool_name": "Bash", "tool_input": {"command": name}, "tool_use_id": name, **more}
        if not more:
            self.line("assistant", [{"type": "tool_use", "id": name, "name": "Bash", "input": {}}])
        self.send("PreToolUse", **tool)
        (self.project / name).write_text(name)
        self.send("PostToolUse", tool_response={}, **tool)
        if not more:
            self.line("user", [{"type": "tool_result", "tool_use_id": name, "content": "ok"}])

    def says(self, prompt: str) -> None:
        self.line("user", prompt)
        self.send("UserPromptSubmit", prompt=prompt)


@pytest.fixture
def typing(project: Path, tmp_path: Path) -> Typing:
    (tmp_path / "claude").mkdir()
    return Typing("claude-code", project, str(tmp_path / "claude" / f"{SESSION}.jsonl"))


def test_a_turn_without_a_name_is_found_among_others_with_the_same_words(
    typing: Typing, project: Path, cli: Cli
) -> None:
    """Before 2.1.196 Claude did not name its turns."""
    for number, prompt in enumerate(("start", "continue", "continue", "continue"), 1):
        typing.says(prompt)
        typing.call(f"t{number}")
    for turn in (3, 2):
        answer = cli("rollback", f"turn:{turn}", "--conversation", "--yes", "--json").json
        kept = prompts(Path(answer["conversations"][0]["path"]).read_bytes())
        assert kept == ["start", "continue"][: turn - 1]
        assert (project / f"t{turn - 1}").exists()
        assert not (project / f"t{turn}").exists()


def test_a_prompt_that_claude_took_back_itself_is_not_mistaken_for_another(typing: Typing, cli: Cli) -> None:
    typing.says("start")
    root = typing.last
    typing.call("t1")
    typing.says("go on")
    typing.call("t2")
    typing.last = root  # /rewind
    typing.says("go on")
    typing.call("t3")
    done = cli("rollback", "turn:2", "--conversation", check=False)
    assert done.code != 0
    assert "already" in done.err
    answer = cli("rollback", "turn:3", "--conversation", "--yes", "--json").json
    assert prompts(Path(answer["conversations"][0]["path"]).read_bytes()) == ["start"]


def test_a_conversation_is_not_cut_at_its_turn_for_a_call_of_a_sub_agent(
    typing: Typing, project: Path, cli: Cli
) -> None:
    typing.says("hello")
    typing.says("do it")
    typing.call("t1")
    task = {"tool_name": "Task", "tool_input": {"prompt": "x"}, "tool_use_id": "task"}
    typing.line("assistant", [{"type": "tool_use", "id": "task", "name": "Task", "input": {}}])
    typing.send("PreToolUse", **task)
    typing.call("inner", agent_id="a1")
    typing.send("PostToolUse", tool_response={}, **task)
    typing.line("user", [{"type": "tool_result", "tool_use_id": "task", "content": "ok"}])
    whole = tree(project)
    done = cli("rollback", "call:inner", "--conversation", check=False)
    assert done.code != 0
    assert "reprieve rollback call:task --conversation" in done.err
    assert tree(project) == whole
    answer = cli("rollback", "call:task", "--conversation", "--yes", "--json").json
    assert prompts(Path(answer["conversations"][0]["path"]).read_bytes()) == ["hello", "do it"]
    assert (project / "t1").exists()
    assert not (project / "inner").exists()


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


class Chatting:
    """Gemini, with its log of a chat; each turn's call writes its number to a file."""

    def __init__(self, project: Path, chat: Path) -> None:
        self.project, self.chat, self.count = project, chat, 0
        self.append({"sessionId": SESSION, "projectHash": "h", "startTime": "2026-11-15T10:00:00.000Z", "kind": "main"})

    def send(self, event: str, **fields: object) -> None:
        payload = {
            "session_id": SESSION, "cwd": str(self.project), "hook_event_name": event,
            "transcript_path": str(self.chat), "timestamp": "2026-11-15T10:00:00Z", **fields,
        }  # fmt: skip
        reply(["gemini", event], json.dumps(payload).encode(), os.environ)

    def turn(self, text: str, *, is_seen: bool = True, writes: bool = False) -> None:
        self.count += 1
        self.say(f"u{self.count}", "user", text)
        if is_seen:
            self.send("BeforeAgent", prompt=text)
        if writes:
            call = {"tool_name": "run_shell_command", "tool_input": {"command": f"echo {self.count} > n"}}
            self.send("BeforeTool", **call)
            (self.project / "n").write_text(str(self.count))
            self.send("AfterTool", tool_response={}, **call)
        self.say(f"a{self.count}", "gemini", "ok")

    def say(self, id: str, kind: str, text: str) -> None:
        self.append({"id": id, "type": kind, "content": text})

    def append(self, record: object) -> None:
        with self.chat.open("a") as file:
            file.write(json.dumps(record) + "\n")


@pytest.fixture
def gemini(project: Path, tmp_path: Path) -> Chatting:
    chats = tmp_path / "chats"
    chats.mkdir()
    return Chatting(project, chats / "session-2026-11-15T10-00-5f0c1d8e.jsonl")


def goes_back(gemini: Chatting, cli: Cli, ref: str) -> list[str]:
    """The ids of the messages of the chat that a rollback makes; the old chat stays as it was."""
    before = gemini.chat.read_bytes()
    (conversation,) = cli("rollback", ref, "--conversation", "--json").json["conversations"]
    assert gemini.chat.read_bytes() == before
    head, *messages = (json.loads(line) for line in Path(conversation["path"]).read_text().splitlines())
    assert conversation["command"] == ["gemini", "--resume", head["sessionId"]]
    assert conversation["kept"] == len(messages)
    return [message["id"] for message in messages]


def test_E1_gemini_gets_a_new_chat_and_redo_finds_the_old_one(gemini: Chatting, project: Path, cli: Cli) -> None:
    for text in ("one", "two", "three"):
        gemini.turn(text, writes=True)
    before = gemini.chat.read_bytes()
    done = cli("rollback", "turn:2", "--conversation", "--yes")
    (made,) = (path for path in gemini.chat.parent.iterdir() if path != gemini.chat)
    head, *messages = (json.loads(line) for line in made.read_text().splitlines())
    assert [message["id"] for message in messages] == ["u1", "a1"]
    assert (head["projectHash"], head["kind"], head["summary"]) == ("h", "main", "before: two")
    assert made.name.startswith("session-")  # Gemini looks for no others
    assert made.name.endswith(f"-{head['sessionId'][:8]}.jsonl")
    assert made.stat().st_mode & 0o077 == 0
    assert f"gemini --resume {head['sessionId']}" in done.out
    assert f"The old one is still there: gemini --resume {SESSION}" in done.out
    assert (project / "n").read_text() == "1"
    cli("redo")
    assert (project / "n").read_text() == "3"
    assert gemini.chat.read_bytes() == before


def test_geminis_chat_may_be_older_than_the_hook(gemini: Chatting, cli: Cli) -> None:
    gemini.turn("explain", is_seen=False)
    gemini.turn("plan", is_seen=False)
    gemini.turn("edit", writes=True)
    assert goes_back(gemini, cli, "turn:1") == ["u1", "a1", "u2", "a2"]


def test_geminis_chat_may_have_been_rewound_before(gemini: Chatting, cli: Cli) -> None:
    for text in ("one", "two", "three"):
        gemini.turn(text, writes=True)
    gemini.append({"$rewindTo": "u2"})
    for text in ("four", "five", "two"):
        gemini.turn(text, writes=True)
    assert cli("rollback", "turn:3", "--conversation", check=False).code != 0  # it is no longer in the chat
    assert goes_back(gemini, cli, "turn:6") == ["u1", "a1", "u4", "a4", "u5", "a5"]
    assert goes_back(gemini, cli, "turn:4") == ["u1", "a1"]


def test_geminis_chat_goes_back_to_before_it_was_summarised(gemini: Chatting, cli: Cli) -> None:
    for text in ("one", "two"):
        gemini.turn(text, writes=True)
    summary = [
        {"id": "s1", "type": "user", "content": "<state_snapshot>"},
        {"id": "s2", "type": "gemini", "content": "k"},
    ]
    gemini.append({"$set": {"messages": summary}})
    for text in ("three", "four"):
        gemini.turn(text, writes=True)
    assert goes_back(gemini, cli, "turn:4") == ["s1", "s2", "u3", "a3"]
    assert goes_back(gemini, cli, "turn:3") == ["s1", "s2"]
    assert goes_back(gemini, cli, "turn:2") == ["u1", "a1"]


def test_a_chat_of_geminis_that_would_be_empty_is_refused(gemini: Chatting, project: Path, cli: Cli) -> None:
    """`gemini --resume` finds no chat in which nobody said anything."""
    gemini.say("c", "user", "<session_context> today is Sunday")
    gemini.turn("one", writes=True)
    before, whole = gemini.chat.read_bytes(), tree(project)
    done = cli("rollback", "turn:1", "--conversation", check=False)
    assert done.code == 3
    assert "nothing of the conversation" in done.err
    assert (gemini.chat.read_bytes(), tree(project)) == (before, whole)
    assert len(list(gemini.chat.parent.iterdir())) == 1


def test_the_same_words_again_do_not_shift_where_geminis_chat_is_cut(gemini: Chatting, cli: Cli) -> None:
    for text in ("continue", "continue", "edit", "continue"):
        gemini.turn(text, writes=text == "edit")
    edit = cli("show", "edit", "--json").json["entry"]["id"]
    assert goes_back(gemini, cli, edit) == ["u1", "a1", "u2", "a2"]


def test_where_nobody_can_tell_which_prompt_it_was_nothing_is_cut(gemini: Chatting, project: Path, cli: Cli) -> None:
    gemini.turn("continue", is_seen=False)
    gemini.turn("continue", writes=True)
    before, whole = gemini.chat.read_bytes(), tree(project)
    done = cli("rollback", "turn:1", "--conversation", check=False)
    assert done.code != 0
    assert "nobody can tell" in done.err
    assert "--files" in done.err
    assert (gemini.chat.read_bytes(), tree(project)) == (before, whole)


def test_a_chat_that_goes_back_further_than_the_files_is_said(gemini: Chatting, cli: Cli) -> None:
    gemini.turn("look", is_seen=False)
    gemini.turn("edit", writes=True)
    (call,) = (e["id"] for e in cli("log", "--json").json["entries"] if e["label"].startswith("before "))
    answer = cli("rollback", call, "--conversation", "--dry-run")
    assert "further than the files" in answer.out


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
