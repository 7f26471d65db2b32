"""Every answer is said in the agent's own language, and nothing of ours ever blocks by accident."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from reprieve.agents import registry
from reprieve.model.hookevent import ALLOW, ASK, BEFORE, DENY, KINDS, PROMPT, Answer, HookEvent

from .recorded import NAMES, every, recordings

WHY = "This step can't be taken back: git push --force"


def event_of(agent: str, kind: str) -> HookEvent:
    for _, record in recordings(agent):
        event = registry.load(agent).read(record["payload"], record["argument"])
        if event.kind == kind and not event.is_read_only:
            return event
    raise LookupError(f"{agent} has no {kind}")


def named(agent: str, ending: str) -> dict[str, Any]:
    return next(record for name, record in recordings(agent) if name.endswith(ending))


KINDS_OF = sorted({(a, registry.load(a).read(r["payload"], r["argument"]).kind) for a, _, r in every()})


def said(agent: str, kind: str, answer: Answer) -> tuple[dict[str, Any], str, int]:
    out, err, code = registry.load(agent).answer(event_of(agent, kind), answer)
    return (json.loads(out) if out else {}), err.decode(), code


@pytest.mark.parametrize("agent", NAMES)
def test_allow_is_silence(agent: str) -> None:
    """Saying "allow" would skip the person's own permission prompt in most agents; vouching is not ours to do."""
    for _, record in recordings(agent):
        event = registry.load(agent).read(record["payload"], record["argument"])
        assert registry.load(agent).answer(event, Answer()) == (b"", b"", 0)


DENIALS: dict[str, tuple[dict[str, Any], str, int]] = {
    "claude-code": (
        {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": WHY,
            }
        },
        "",
        0,
    ),
    "gemini": ({"decision": "deny", "reason": WHY}, "", 0),
    "cursor": ({"permission": "deny", "user_message": WHY, "agent_message": WHY}, "", 0),
    "opencode": ({"deny": True, "reason": WHY}, "", 0),
    "copilot": ({"permissionDecision": "deny", "permissionDecisionReason": WHY}, "", 0),
    "cline": ({"cancel": True, "errorMessage": WHY}, "", 0),
    "windsurf": ({}, WHY + "\n", 2),
    "goose": ({}, WHY + "\n", 2),
    "crush": ({"decision": "deny", "reason": WHY}, "", 0),
    "openhands": ({"decision": "deny", "reason": WHY}, "", 0),
}
DENIALS["codex"] = DENIALS["vscode"] = DENIALS["claude-code"]


@pytest.mark.parametrize("agent", NAMES)
def test_deny_stops_the_call_and_gives_the_reason(agent: str) -> None:
    assert said(agent, BEFORE, Answer(DENY, WHY)) == DENIALS[agent]


CAN_ASK: dict[str, dict[str, Any]] = {
    "claude-code": {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "ask",
            "permissionDecisionReason": WHY,
        }
    },
    "gemini": {"decision": "ask", "reason": WHY, "systemMessage": WHY},
    "cursor": {"permission": "ask", "user_message": WHY, "agent_message": WHY},
    "copilot": {"permissionDecision": "ask", "permissionDecisionReason": WHY},
}
CAN_ASK["vscode"] = CAN_ASK["claude-code"]


@pytest.mark.parametrize("agent", NAMES)
def test_ask_asks_where_the_agent_can_and_denies_where_it_cannot(agent: str) -> None:
    """Codex, for one, takes an `ask` for a broken hook and runs the tool."""
    output, err, code = said(agent, BEFORE, Answer(ASK, WHY, is_waiting=True))
    if agent in CAN_ASK:
        assert (output, err, code) == (CAN_ASK[agent], "", 0)
        return
    whole = json.dumps(output) + err
    assert '"ask"' not in whole
    assert "reprieve approvals" in whole
    # no checkpoint: nobody was asked, so there is nothing to approve
    assert "approvals" not in str(said(agent, BEFORE, Answer(ASK, WHY)))
    assert code == 2 or any(word in whole for word in ('"deny"', '"deny": true', '"cancel": true'))


def test_cline_asks_through_the_sdk_only() -> None:
    cline = registry.load("cline")
    record = named("cline", "sdk-subagent-before")
    out, _, code = cline.answer(cline.read(record["payload"], None), Answer(ASK, WHY))
    assert (json.loads(out), code) == ({"cancel": False, "review": True, "errorMessage": WHY}, 0)


@pytest.mark.parametrize("agent", NAMES)
@pytest.mark.parametrize("decision", [ASK, DENY])
def test_a_refusal_without_a_reason_says_who_refused_and_whom_to_ask(agent: str, decision: str) -> None:
    """Codex counts a deny with an empty reason as a failed hook and runs the tool."""
    output, err, _ = said(agent, BEFORE, Answer(decision, "  "))
    whole = json.dumps(output) + err
    assert "Reprieve" in whole
    assert "Ask the user" in whole
    assert "REPRIEVE_DISABLED" not in whole and "unprotect" not in whole


def test_copilot_never_exits_with_anything_but_zero() -> None:
    """Any other exit denies every call there."""
    copilot = registry.load("copilot")
    for _, record in recordings("copilot"):
        event = copilot.read(record["payload"], record["argument"])
        for decision in (ALLOW, ASK, DENY):
            assert copilot.answer(event, Answer(decision, WHY, "note"))[2] == 0


def test_copilot_in_claudes_spelling_answers_in_both_languages() -> None:
    """VS Code and Copilot can't always be told apart there; each finds its own field."""
    copilot = registry.load("copilot")
    record = named("copilot", "claude-file-before")
    out, _, _ = copilot.answer(copilot.read(record["payload"], "PreToolUse"), Answer(DENY, WHY))
    output = json.loads(out)
    assert output["permissionDecision"] == output["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert output["hookSpecificOutput"]["hookEventName"] == "PreToolUse"


@pytest.mark.parametrize(("agent", "kind"), KINDS_OF)
def test_a_note_is_said_exactly_where_the_agent_says_that_it_carries_notes(agent: str, kind: str) -> None:
    """The hook marks a note as delivered by `carries_note`: it must not be lost."""
    event = event_of(agent, kind)
    out, err, code = registry.load(agent).answer(event, Answer(note="3 files were rolled back"))
    assert (b"3 files were rolled back" in out) == registry.load(agent).carries_note(event)
    assert (err, code) == (b"", 0)
    if kind == BEFORE and out:
        output = json.loads(out)
        assert "permissionDecision" not in json.dumps(output)
        assert output.get("decision") is None


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini", "vscode"])
def test_a_note_has_the_name_of_its_event(agent: str) -> None:
    kind = PROMPT if agent != "vscode" else "after"
    event = event_of(agent, kind)
    output, _, _ = said(agent, kind, Answer(note="rolled back"))
    assert output == {"hookSpecificOutput": {"hookEventName": event.raw_event, "additionalContext": "rolled back"}}


def mutate(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Something near a payload: fields gone, renamed, of another type, nested, huge."""
    roll = rng.random()
    if roll < 0.12:
        return rng.choice(
            [None, True, -1, 10**400, 1.5, float("nan"), "", "\0", "\ud800", "x" * 5000, [], {}, [[[]]], {"a": None},
             ["a", 1, None, {"command": 3}], "{", '{"command": 1}', "[" * 3000, "*** Add File: \n*** Move to: x",
             "~/", "a\nb", 10**5000]
        )  # fmt: skip
    if isinstance(value, dict):
        out: dict[str, Any] = {}
        for key, inner in value.items():
            roll = rng.random()
            if roll < 0.08:
                continue
            name = (
                key if roll > 0.12 else rng.choice(["tool_name", "hook_event_name", "toolArgs", "tool_input", "type"])
            )
            out[name] = mutate(rng, inner, depth + 1) if rng.random() < 0.6 else inner
        return out
    if isinstance(value, list):
        return [mutate(rng, inner, depth + 1) for inner in value] * rng.choice([1, 1, 2, 50])
    if isinstance(value, str) and roll < 0.3:
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice(["\udcff", "'", '"', "\\", "\n", "é", " "]) + value[at:]
    return value


@pytest.mark.parametrize("agent", NAMES)
def test_ten_thousand_mutated_payloads_never_raise(agent: str) -> None:
    """Whatever an agent sends, the hook has an answer: JSON or nothing on stdout, and exit 0 or a meant 2."""
    rng = random.Random(f"reprieve {agent}")
    module = registry.load(agent)
    records = [record for name, record in recordings(agent)]
    foreign = [record for _, _, record in every()]
    answers = [Answer(), Answer(DENY, WHY), Answer(ASK, "\ud800"), Answer(DENY), Answer(note="n\udcff")]
    for n in range(10_000):
        record = rng.choice(foreign if n % 10 == 0 else records)
        payload = mutate(rng, record["payload"])
        if not isinstance(payload, dict):
            payload = {}
        argument = rng.choice([record["argument"], None, "", "PreToolUse", "nonsense"])
        assert registry.host_of(agent, payload, {}) in NAMES
        event = module.read(payload, argument)
        assert event.kind in KINDS
        json.dumps(event.arguments, allow_nan=False)  # goes on the timeline
        answer = answers[n % len(answers)]
        out, err, code = module.answer(event, answer)
        if out:
            assert isinstance(json.loads(out), dict)
        assert code == 0 or (code == 2 and err.strip() and answer.decision != ALLOW)


@pytest.mark.parametrize("agent", NAMES)
def test_a_huge_payload_is_read_quickly(agent: str) -> None:
    """A tool that writes ten megabytes must not make the hook slow."""
    record = named(agent, "edit-before")
    payload = json.loads(json.dumps(record["payload"]).replace("bye", "password=x token: y " * 250_000))
    started = time.process_time()  # the machine may be busy
    event = registry.load(agent).read(payload, record["argument"])
    assert time.process_time() - started < 2
    assert event.kind == BEFORE
    assert len(json.dumps(event.arguments)) < 50_000
