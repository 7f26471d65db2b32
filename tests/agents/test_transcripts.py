"""A conversation is cut only where every call has its result, and only into a new session."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.agents import claude_transcript, codex_transcript, gemini_transcript
from reprieve.agents.transcript import Message, Transcript, cut_after, cut_before, dump, find, find_said, legal_cuts
from reprieve.errors import BadRef, Misconfigured

FOLDER = Path(__file__).with_name("transcripts")
CLAUDE = (FOLDER / "claude-code.jsonl").read_bytes()
CODEX = (FOLDER / "codex.jsonl").read_bytes()
NOW = "2026-11-15T12:00:00.000Z"


def ids() -> Callable[[], str]:
    count = itertools.count(1)
    return lambda: str(uuid.UUID(int=next(count) + (0x4FFF << 64) + (0x8FFF << 48)))


def claude_fork(keep: int) -> list[dict[str, object]]:
    fork = claude_transcript.fork(claude_transcript.parse(CLAUDE), keep, title="t", now=NOW, new_id=ids())
    return [json.loads(line) for line in fork.data.splitlines()]


def test_claudes_conversation_is_the_path_to_the_newest_message() -> None:
    """Sub-agents, progress lines, an abandoned branch and a half-written last line are not part of it."""
    transcript = claude_transcript.parse(CLAUDE)
    assert [m.text for m in transcript.messages if m.is_prompt] == [
        "Tidy up the build", "Delete what is stale", "Now run the tests", "Stop; say what you did",
    ]  # fmt: skip
    calls = [call for m in transcript.messages for call in m.calls]
    assert calls == ["toolu_1", "toolu_2", "toolu_3", "toolu_4", "toolu_5"]
    assert sorted(r for m in transcript.messages for r in m.results) == calls


@pytest.mark.parametrize(
    ("where", "last_prompt", "last_call"),
    [
        ({"call": "toolu_1"}, "Tidy up the build", None),
        ({"turn": "prompt_2"}, "Tidy up the build", "toolu_1"),
        ({"call": "toolu_2"}, "Delete what is stale", "toolu_1"),
        # The second of two parallel calls: the first one goes too, they are one message.
        ({"call": "toolu_3"}, "Delete what is stale", "toolu_1"),
        ({"turn": "prompt_3"}, "Delete what is stale", "toolu_3"),
        ({"call": "toolu_5"}, "Now run the tests", "toolu_4"),
        ({"turn": "prompt_4"}, "Now run the tests", "toolu_5"),
    ],
)
def test_claude_is_cut_before_a_call_or_a_turn(where: dict[str, str], last_prompt: str, last_call: str | None) -> None:
    transcript = claude_transcript.parse(CLAUDE)
    keep = cut_before(transcript, find(transcript, **where))
    kept = transcript.messages[:keep]
    assert [m.text for m in kept if m.is_prompt][-1] == last_prompt
    assert [c for m in kept for c in m.calls][-1:] == ([last_call] if last_call else [])


def test_every_legal_cut_of_claudes_gives_whole_pairs_and_a_whole_chain() -> None:
    transcript = claude_transcript.parse(CLAUDE)
    for keep in legal_cuts(transcript.messages)[1:]:
        lines = claude_fork(keep)
        messages = [line for line in lines if line["type"] in ("user", "assistant")]
        calls: set[str] = set()
        results: set[str] = set()
        known: set[object] = {None}
        for line in messages:
            assert line["parentUuid"] in known
            known.add(line["uuid"])
            body = line["message"]
            assert isinstance(body, dict)
            for block in body["content"] if isinstance(body["content"], list) else []:
                if block["type"] == "tool_use":
                    calls.add(block["id"])
                elif block["type"] == "tool_result":
                    results.add(block["tool_use_id"])
        assert calls == results
        assert sum(line["parentUuid"] is None for line in messages) == 1


def test_a_fork_is_a_new_session_with_new_ids_and_the_old_content() -> None:
    transcript = claude_transcript.parse(CLAUDE)
    keep = cut_before(transcript, find(transcript, turn="prompt_3"))
    fork = claude_transcript.fork(transcript, keep, title="Tidy up (rolled back)", now=NOW, new_id=ids())
    assert fork.session != transcript.session
    assert fork.file_name == f"{fork.session}.jsonl"
    assert fork.command == ("claude", "--resume", fork.session)
    assert (fork.kept, fork.dropped) == (keep, len(transcript.messages) - keep)
    assert fork.last_turn == "prompt_2"
    lines = [json.loads(line) for line in fork.data.splitlines()]
    old_ids = {m.id for m in transcript.messages}
    for line in lines:
        assert line["sessionId"] == fork.session
        assert line["uuid"] not in old_ids
    assert [line["forkedFrom"]["messageUuid"] for line in lines if "forkedFrom" in line] == [
        m.id for m in transcript.messages[:keep]
    ]
    assert lines[-1]["customTitle"] == "Tidy up (rolled back)"
    (replaced,) = [line for line in lines if line["type"] == "content-replacement"]
    assert [r["toolUseId"] for r in replaced["replacements"]] == ["toolu_1"]


def test_codex_turns_and_those_taken_back_by_codex_itself() -> None:
    transcript = codex_transcript.parse(CODEX)
    assert [m.text for m in transcript.messages if m.is_prompt] == [
        "Tidy up the build", "Delete what is stale", "Now run the tests", "Say what you did",
    ]  # fmt: skip
    starts = [m.turn for m in transcript.messages if m.is_turn_start]
    assert [str(turn)[-1] for turn in starts] == ["1", "2", "4", "5"]


@pytest.mark.parametrize(("call", "turn"), [("call_2", "1"), ("call_3", "1"), ("call_5", "2")])
def test_codex_is_cut_at_whole_turns(call: str, turn: str) -> None:
    """Its own `thread/fork` can do no other; the file and the request say the same."""
    transcript = codex_transcript.parse(CODEX)
    keep = codex_transcript.turn_cut(transcript, find(transcript, call=call))
    request = codex_transcript.fork_request(transcript, keep)
    fork = codex_transcript.fork(transcript, keep, now=NOW, new_id=ids())
    assert request["method"] == "thread/fork"
    params = request["params"]
    assert isinstance(params, dict)
    assert params["lastTurnId"] == fork.last_turn
    assert str(fork.last_turn).endswith(turn)
    assert fork.file_name == f"rollout-2026-11-15T12-00-00-{fork.session}.jsonl"
    lines = [json.loads(line) for line in fork.data.splitlines()]
    assert lines[0]["payload"]["id"] == fork.session
    assert lines[0]["payload"]["forked_from_id"] == transcript.session
    assert transcript.session not in json.dumps(lines[1:])
    again = codex_transcript.parse(fork.data)
    assert [m.turn for m in again.messages] == [m.turn for m in transcript.messages[:keep]]
    calls = {c for m in again.messages for c in m.calls}
    assert calls == {r for m in again.messages for r in m.results}


def test_an_older_codex_writes_no_start_of_a_turn_and_is_cut_before_the_prompt() -> None:
    """The event that tells of a prompt comes after the prompt as the model gets it: both go."""
    lines: list[dict[str, object]] = [{"type": "session_meta", "payload": {"id": "s"}}]
    for number in (1, 2, 3):
        said = [{"type": "input_text", "text": f"do {number}"}]
        lines += [
            {"type": "turn_context", "payload": {"cwd": "/"}},
            {"type": "response_item", "payload": {"type": "message", "role": "user", "content": said}},
            {"type": "event_msg", "payload": {"type": "user_message", "message": f"do {number}"}},
            {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": []}},
            {"type": "event_msg", "payload": {"type": "token_count"}},
        ]
    transcript = codex_transcript.parse(dump(lines))
    assert [m.text for m in transcript.messages if m.is_prompt] == ["do 1", "do 2", "do 3"]
    assert len({m.turn for m in transcript.messages}) == 3
    for number, prompt in enumerate(m for m in transcript.messages if m.is_prompt):
        keep = codex_transcript.turn_cut(transcript, transcript.messages.index(prompt))
        assert keep == 5 * number
        if keep:
            data = codex_transcript.fork(transcript, keep, now=NOW, new_id=ids()).data
            assert f"do {number}".encode() in data
            assert f"do {number + 1}".encode() not in data
    taken = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    assert len(codex_transcript.parse(dump([*lines, taken])).messages) == 10


@pytest.mark.parametrize(("module", "data", "turn"), [
    (claude_transcript, CLAUDE, "prompt_1"), (codex_transcript, CODEX, "01a1e223-bd5f-74c0-ab2a-976310000001"),
])  # fmt: skip
def test_before_the_first_turn_nothing_is_left_to_fork(module: ModuleType, data: bytes, turn: str) -> None:
    transcript = module.parse(data)
    keep = cut_before(transcript, find(transcript, turn=turn))
    assert keep == 0
    more = {"title": "t"} if module is claude_transcript else {}
    with pytest.raises(Misconfigured):
        module.fork(transcript, keep, now=NOW, new_id=ids(), **more)


def test_a_message_that_is_not_there_is_an_error_with_a_hint() -> None:
    with pytest.raises(BadRef) as caught:
        find(claude_transcript.parse(CLAUDE), call="toolu_77")
    assert caught.value.hints


@pytest.mark.parametrize("data", [b"", b"\n", b"[]\n", b'{"type":"summary"}\n', b"\xff\xfe", b"{" * 5000])
@pytest.mark.parametrize("module", [claude_transcript, codex_transcript])
def test_something_else_than_a_transcript_is_refused(module: ModuleType, data: bytes) -> None:
    with pytest.raises(Misconfigured):
        module.parse(data)


@pytest.mark.parametrize(("module", "data"), [(claude_transcript, CLAUDE), (codex_transcript, CODEX)])
def test_damaged_transcripts_are_read_or_refused(module: ModuleType, data: bytes) -> None:
    """Lines lost, repeated, swapped or cut short: a fork has whole pairs, or there is none."""
    rng = random.Random(7)
    lines = data.splitlines(keepends=True)
    for _ in range(400):
        mixed = [line for line in lines if rng.random() > 0.1]
        if rng.random() < 0.5:
            rng.shuffle(mixed)
        if mixed and rng.random() < 0.5:
            at = rng.randrange(len(mixed))
            mixed[at] = mixed[at][: rng.randrange(len(mixed[at]))] + b"\n"
        try:
            transcript = module.parse(b"".join(mixed))
        except Misconfigured:
            continue
        for keep in legal_cuts(transcript.messages)[1:]:
            more = {"title": "t"} if module is claude_transcript else {}
            try:
                fork = module.fork(transcript, keep, now=NOW, new_id=ids(), **more)
            except Misconfigured:
                continue
            for line in fork.data.splitlines():
                assert isinstance(json.loads(line), dict)


names = st.lists(st.sampled_from("abcd"), max_size=2, unique=True).map(tuple)
streams = st.lists(
    st.builds(
        lambda calls, results, prompt, group: Message(
            line=0, calls=() if prompt else calls, results=() if prompt else results, is_prompt=prompt, group=group
        ),
        names, names, st.booleans(), st.none() | st.sampled_from("xy"),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=300)
@given(streams, st.integers(0, 11))
def test_a_cut_never_keeps_a_call_whose_result_comes_later(messages: list[Message], at: int) -> None:
    transcript = Transcript(agent="x", session="s", messages=tuple(messages), lines=())
    at = min(at, max(len(messages) - 1, 0))
    before, after = cut_before(transcript, at), cut_after(transcript, at)
    assert before <= at
    assert before <= after <= at + 1
    for keep in (before, after):
        waiting: set[str] = set()
        for message in messages[:keep]:
            waiting = (set() if message.is_prompt else waiting | set(message.calls)) - set(message.results)
        assert not waiting
        if 0 < keep < len(messages):
            assert messages[keep - 1].group is None or messages[keep - 1].group != messages[keep].group


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12))
def test_a_prompt_is_found_by_its_words_or_not_at_all_but_never_in_a_wrong_place(talk: list[tuple[str, bool]]) -> None:
    """Of what was said we saw some, in its order."""
    there = [words for words, _ in talk]
    seen = [index for index, (_, is_seen) in enumerate(talk) if is_seen]
    for nth, index in enumerate(seen):
        try:
            found = find_said(there, [there[i] for i in seen], nth)
        except BadRef:
            assert len(seen) < len(there)
        else:
            assert found == index


def test_prompts_with_the_same_words_are_told_apart_by_what_is_around_them() -> None:
    there = ["continue", "plan", "continue", "edit", "continue"]
    assert find_said(there, there[1:], 1) == 2
    assert find_said(there, ["edit", "continue"], 1) == 4
    with pytest.raises(BadRef):
        find_said(there, ["continue", "edit"], 0)


# --- Gemini's log


def gemini_log(*records: object) -> bytes:
    about = {"sessionId": "s", "projectHash": "h", "startTime": "2026-11-15T10:00:00.000Z"}
    return b"".join(json.dumps(record).encode() + b"\n" for record in (about, *records))


def says(*names: str) -> list[dict[str, object]]:
    """Messages; a person's are those whose name begins with u."""
    return [{"id": n, "type": "user" if n[0] == "u" else "gemini", "content": f"of {n}"} for n in names]


CHAT = gemini_log(
    *says("u1", "a1"),
    {"$set": {"lastUpdated": "2026-11-15T10:00:01.000Z"}},
    {"id": "u2", "type": "user", "content": [{"text": "taken back"}]},
    {"$rewindTo": "u2"},
    *says("u3", "a3"),
)


def gemini_fork(data: bytes, message: str) -> list[dict[str, object]]:
    fork = gemini_transcript.fork(gemini_transcript.parse(data), message, title="t", now=NOW, new_id=ids())
    return [json.loads(line) for line in fork.data.splitlines()]


def gemini_reads(data: bytes, *, version: int) -> list[dict[str, object]]:
    """What Gemini CLI makes of a log: 0 ignores the messages of a `$set`, 1 takes these alone, 2 goes on from them."""
    about: dict[str, object] = {}
    there: dict[str, dict[str, object]] = {}
    for line in data.decode().split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "$rewindTo" in record:
            names = list(there)
            at = names.index(record["$rewindTo"]) if record["$rewindTo"] in there else 0
            there = {name: there[name] for name in names[:at]}
        elif "id" in record:
            there[record["id"]] = record
        else:
            about |= record.get("$set", record)
            if version == 2 and "messages" in about:
                there = {message["id"]: message for message in about.pop("messages")}  # type: ignore[attr-defined]
    assert about["sessionId"]
    assert about["projectHash"]
    return about["messages"] if version == 1 and "messages" in about else list(there.values())  # type: ignore[return-value]


def test_what_was_said_to_gemini_and_taken_back_is_still_known() -> None:
    assert gemini_transcript.parse(CHAT).prompts == {"u1": "of u1", "u2": "taken back", "u3": "of u3"}


@pytest.mark.parametrize("message", ["u9", "u2", ""])
def test_gemini_is_not_cut_at_a_message_that_is_not_in_the_chat(message: str) -> None:
    with pytest.raises(BadRef):
        gemini_fork(CHAT, message)
    with pytest.raises(BadRef):
        gemini_fork(CHAT + b'{"$rewindTo": "unknown"}\n', "u3")


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_every_gemini_reads_the_new_chat_alike(version: int, end: bytes) -> None:
    """Also where the old one was summarised, which they read differently, or is torn."""
    summarised = {"$set": {"messages": says("s1", "a9")}}
    data = gemini_log(*says("u1", "a1"), summarised, *says("u2", "a2", "u3", "a3")).removesuffix(b"\n") + end
    for message, kept in {"u3": says("s1", "a9", "u2", "a2"), "u2": says("s1", "a9")}.items():
        fork = gemini_transcript.fork(gemini_transcript.parse(data), message, title="t", now=NOW, new_id=ids())
        assert gemini_reads(fork.data, version=version) == kept
        assert fork.kept == len(kept)
    assert fork.dropped == 4


def test_a_message_of_geminis_is_kept_as_it_read_last() -> None:
    newer = {"id": "a1", "type": "gemini", "content": "of a1", "toolCalls": [{"id": "c1", "result": "long"}]}
    masked = {"$patch": {"updates": [{"id": "a1", "toolCalls": [{"id": "c1", "result": "short"}]}]}}
    _, _, kept = gemini_fork(gemini_log(*says("u1", "a1"), newer, masked, *says("u2")), "u2")
    assert kept == {**newer, "toolCalls": [{"id": "c1", "result": "short"}]}


def test_gemini_may_take_out_and_move_messages() -> None:
    patch = {"$patch": {"removeIds": ["u1", "a1"], "orderIds": ["s1", "u2", "a2", "gone"]}}
    data = gemini_log(*says("u1", "a1", "u2", "a2", "s1"), patch, *says("u3"))
    assert [line["id"] for line in gemini_fork(data, "u3")[1:]] == ["s1", "u2", "a2"]
    assert [line["id"] for line in gemini_fork(data, "u2")[1:]] == ["u1", "a1"]


def test_geminis_older_chats_stand_on_one_line() -> None:
    about = {"sessionId": "s", "projectHash": "h", "messages": says("u1", "a1", "u2", "a2")}
    data = json.dumps(about).encode() + b"\n"
    assert [line["id"] for line in gemini_fork(data, "u2")[1:]] == ["u1", "a1"]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"sessionId": "s"}', gemini_log({"$set": {"kind": "subagent"}})])
def test_what_gemini_would_not_resume_is_refused(data: bytes) -> None:
    with pytest.raises(Misconfigured):
        gemini_transcript.parse(data)


@pytest.mark.parametrize("before", [[], [{"id": "i", "type": "info", "content": "hello"}], says("u/")])
def test_a_new_chat_of_geminis_has_something_that_was_said(before: list[dict[str, object]]) -> None:
    for message in before:
        message["content"] = "/help"
    with pytest.raises(Misconfigured):
        gemini_fork(gemini_log(*before, *says("u1", "a1")), "u1")


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["u1", "a1", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "content", "$set", "$patch", "$rewindTo", "messages", "toolCalls",
                             "updates", "removeIds", "orderIds", "result", "sessionId", "projectHash"]),
            inner, max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(_ODD, max_size=5))
@settings(max_examples=200, deadline=None)
def test_an_odd_log_of_geminis_is_read_or_refused(odd: list[object]) -> None:
    data = gemini_log(*says("u1", "a1"), *odd, *says("u2", "a2"))
    try:
        lines = gemini_fork(data, "u2")
    except (BadRef, Misconfigured):
        return
    assert all(isinstance(line["id"], str) for line in lines[1:])
