"""Every agent's payloads become the same neutral events."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.agents import registry
from reprieve.errors import Usage
from reprieve.model import quickjson
from reprieve.model.hookevent import AFTER, BEFORE, FAILED, KINDS, OTHER, PROMPT
from support import SRC

from .recorded import NAMES, PROJECT, every, recordings

EVERY = every()


def plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(("agent", "name", "record"), EVERY, ids=[f"{a}-{n}" for a, n, _ in EVERY])
def test_a_recorded_payload_reads_as_expected(agent: str, name: str, record: dict[str, Any]) -> None:
    event = registry.load(agent).read(record["payload"], record["argument"])
    assert event.agent == agent
    assert event.kind in KINDS
    for field, expected in record["expect"].items():
        assert plain(getattr(event, field)) == expected, field


@pytest.mark.parametrize(("agent", "name", "record"), EVERY, ids=[f"{a}-{n}" for a, n, _ in EVERY])
def test_the_real_host_is_recognised(agent: str, name: str, record: dict[str, Any]) -> None:
    """The command line names the agent whose file the entry is in; the payload says who really called."""
    variables = {"CRUSH": "1"} if agent == "crush" else {}
    installed_as = {"vscode": "copilot"}.get(agent, agent)
    if agent == "copilot" and "hook_event_name" in record["payload"]:
        installed_as = "claude-code"  # the spelling that it uses for entries in Claude's files
    assert registry.host_of(installed_as, record["payload"], variables) == agent


FOREIGN = [(a, n, r) for a, n, r in EVERY if a in ("cursor", "vscode", "copilot") and r["expect"].get("tool")]


@pytest.mark.parametrize(("agent", "name", "record"), FOREIGN, ids=[f"{a}-{n}" for a, n, _ in FOREIGN])
def test_a_program_that_runs_claudes_entry_is_not_taken_for_claude(
    agent: str, name: str, record: dict[str, Any]
) -> None:
    assert registry.host_of("claude-code", record["payload"], {}) == agent


@pytest.mark.parametrize("agent", NAMES)
def test_a_session_has_every_kind_of_step(agent: str) -> None:
    """Prompt, reads, edits, shell, a failing and a cancelled tool, parallel calls, as far as the agent reports them."""
    events = [registry.load(agent).read(r["payload"], r["argument"]) for _, r in recordings(agent)]
    kinds = {event.kind for event in events}
    assert BEFORE in kinds
    if agent != "crush":
        assert kinds >= {PROMPT, AFTER}
    assert any(event.is_read_only for event in events)
    assert any(event.command and "rm -f .env" in event.command for event in events)
    assert any(event.paths == (f"{PROJECT}/src/main.py",) or len(event.paths) > 1 for event in events)


@pytest.mark.parametrize("agent", [name for name in NAMES if name != "crush"])
def test_after_pairs_with_before(agent: str) -> None:
    """By call id where there is one, by input key and order where not."""
    open_calls: list[tuple[str | None, str | None, str]] = []
    for name, record in recordings(agent):
        event = registry.load(agent).read(record["payload"], record["argument"])
        if event.kind not in (BEFORE, AFTER, FAILED) or name.startswith("sdk-"):
            continue
        key = (event.parent, event.call_id, event.call_id or event.input_key)
        if event.kind == BEFORE:
            open_calls.append(key)
        else:
            assert key in open_calls, name
            open_calls.remove(key)


def test_parallel_calls_without_ids_have_different_keys() -> None:
    gemini = registry.load("gemini")
    keys = [
        gemini.read(r["payload"], r["argument"]).input_key
        for name, r in recordings("gemini")
        if "parallel" in name and "before" in name
    ]
    assert len(set(keys)) == 2


def test_arguments_are_redacted_and_shortened_and_the_command_is_not() -> None:
    """People see the arguments, the gate has to see the command as it will run."""
    command = "curl -H 'Authorization: Bearer abcdef123456' https://x.example && " + "echo x; " * 1000
    event = registry.load("claude-code").read(
        {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}}
    )
    assert event.command == command
    assert event.arguments is not None
    shown = event.arguments["command"]
    assert isinstance(shown, str)
    assert "abcdef123456" not in shown
    assert len(shown) < 2100


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=5), v, max_size=4),
)


@given(values)
def test_the_small_json_reads_and_writes_what_the_big_one_does(value: object) -> None:
    text = json.dumps(value, sort_keys=True)
    assert quickjson.dumps(value, sort_keys=True) == text
    assert quickjson.loads(f" {text}\n") == value


@given(st.text(alphabet='{}[]",:1e-.tfn aul\\rse"', max_size=30))
def test_the_small_json_refuses_what_the_big_one_refuses(text: str) -> None:
    try:
        expected = json.loads(text, strict=False)
    except ValueError:
        with pytest.raises(ValueError):
            quickjson.loads(text)
    else:
        assert repr(quickjson.loads(text)) == repr(expected)


@pytest.mark.parametrize(
    ("data", "payload", "is_wrong"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}, False),
        (b"", {}, True),
        (b"[]", {}, True),
        (b"{", {}, True),
        (b"\xff\xfe{", {}, True),
        (b'{"a": "\xff"}', {"a": "\udcff"}, False),
        (b"[" * 100_000, {}, True),
        (b'{"a": ' + b"1" * 5000 + b"}", {}, True),
    ],
)
def test_stdin_is_read_without_ever_raising(data: bytes, payload: dict[str, object], is_wrong: bool) -> None:
    found, problem = registry.parse(data)
    assert found == payload
    assert (problem is not None) == is_wrong


def test_a_payload_that_is_cut_off_is_noticed_where_json_was_never_loaded() -> None:
    """As in a hook. There the scanner of Python 3.11 ends with a SystemError instead of its own exception."""
    script = (
        "import sys; from reprieve.agents import registry; assert 'json' not in sys.modules; "
        """assert all(registry.parse(data)[1] for data in (b'{"a', b'{"a": 1', b'{"a": "b', b'[1', b'{'))"""
    )
    env = {"PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-S", "-c", script], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_broken_payload_still_counts_as_a_risky_call_if_the_command_line_says_so() -> None:
    """Fail closed: what we can't read is not taken for harmless."""
    event = registry.load("cursor").read({}, "preToolUse")
    assert event.kind == BEFORE
    assert not event.is_read_only


def test_an_unknown_event_is_of_no_interest() -> None:
    for name in NAMES:
        assert registry.load(name).read({}, "SomethingNew").kind == OTHER


@pytest.mark.parametrize("agent", NAMES)
def test_a_name_of_an_event_that_nobody_knows_does_not_hide_what_the_command_line_says(agent: str) -> None:
    """A renamed event would otherwise run every call without a checkpoint, in silence."""
    read, record = registry.load(agent).read, next(r for _, r in recordings(agent) if r["expect"]["kind"] == BEFORE)
    payload = dict(record["payload"])
    known = read(payload, record["argument"])
    names = ("hook_event_name", "hookEventName", "event", "event_type", "hookName", "agent_action_name", "type")
    renamed = {key: f"{value}V2" if key in names else value for key, value in payload.items()}
    assert read(renamed, known.raw_event) == known


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(Usage) as caught:
        registry.load("claude")
    assert any("claude-code" in hint for hint in caught.value.hints)
    with pytest.raises(Usage):
        registry.load("../evil")


HEAVY = (
    "typing",
    "dataclasses",
    "argparse",
    "enum",
    "pathlib",
    "subprocess",
    "logging",
    "datetime",
    "inspect",
    "json",
    "re",
)


@pytest.mark.parametrize("agent", NAMES)
def test_reading_and_answering_imports_nothing_heavy(agent: str) -> None:
    """This runs before every tool call."""
    script = f"""
import sys
before = set(sys.modules)
from reprieve.agents import registry
from reprieve.model import hookevent as event
agent = registry.load({agent!r})
payload, problem = registry.parse(sys.stdin.buffer.read())
agent.answer(agent.read(payload, "PreToolUse"), event.Answer("deny", "because"))
print(sorted(set(sys.modules) - before))
"""
    payload = json.dumps(recordings(agent)[4][1]["payload"]).encode()
    run = subprocess.run([sys.executable, "-S", "-E", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"],
                         input=payload, capture_output=True, check=True)  # fmt: skip
    loaded = eval(run.stdout)
    assert not [name for name in loaded if name in HEAVY]
    ours = [name for name in loaded if name.startswith("reprieve")]
    mine = f"reprieve.agents.{agent.replace('-', '_')}"
    shared = {"reprieve.agents.copilot"} if agent == "vscode" else set()
    expected = {
        "reprieve", "reprieve.agents", "reprieve.agents.reading", "reprieve.agents.registry",
        "reprieve.model.hookevent", "reprieve.model.quickjson",
        "reprieve.errors", "reprieve.model", "reprieve.model.value", "reprieve.policy", "reprieve.policy.redact",
        "reprieve.policy.secret_words", mine,
    } | shared  # fmt: skip
    assert set(ours) <= expected
