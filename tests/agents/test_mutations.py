"""Whatever an agent sends, and whatever goes wrong with us, the hook has an answer in the agent's language."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.cli.hooking import reply
from reprieve.errors import Refused, StoreCorrupted, StoreFailed, StoreLocked
from reprieve.model.hookevent import HookEvent

from .recorded import NAMES, PROJECT, every, recordings
from .test_answers import mutate

Handle = Callable[..., str]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The same bytes, cut, doubled, with a byte changed, or as they are."""
    roll = rng.random()
    at = rng.randrange(len(data) + 1)
    if roll < 0.1:
        return data[:at]
    if roll < 0.2:
        return data[:at] + rng.randbytes(3) + data[at:]
    if roll < 0.25:
        return b"\xef\xbb\xbf" + data
    return data


def encoded(payload: Any) -> bytes:
    try:
        return json.dumps(payload).encode()
    except ValueError:  # a number that has no decimal form
        return b"{"


def troubled(rng: random.Random) -> Handle:
    """What does the work, with all the troubles that it may have."""
    troubles: list[BaseException] = [
        StoreFailed("the disk is full", hints=["reprieve prune"]),
        StoreLocked("busy \udcff"),
        StoreCorrupted("entry 3"),
        Refused("home"),
        OSError(28, "No space left on device"),
        OSError("no number"),
        MemoryError(),
        RecursionError(),
        ValueError("\ud800"),
        KeyError("x"),
        KeyboardInterrupt(),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "y"),
    ]

    def handle(event: HookEvent, **_: object) -> str:
        roll = rng.random()
        if roll < 0.4:
            raise rng.choice(troubles)
        return "" if roll < 0.8 else "files were rolled back \ud800"

    return handle


def check(agent: str, out: bytes, err: bytes, code: int) -> None:
    assert b"Traceback" not in out + err
    if out:
        assert isinstance(json.loads(out), dict)
    # 2 is a refusal, and never without a word; Copilot takes any exit but 0 for one
    assert code == 0 or (code == 2 and b"Reprieve" in err), (out, err, code)
    if agent in ("copilot", "vscode", "claude-code", "codex", "gemini", "cursor", "opencode", "cline"):
        assert code == 0 or not out


@pytest.mark.parametrize("agent", NAMES)
def test_ten_thousand_mutated_payloads_always_get_an_answer(agent: str, home: Path) -> None:
    rng = random.Random(f"mutated {agent}")
    records = [record for _, record in recordings(agent)]
    foreign = [record for _, _, record in every()]
    handle = troubled(rng)
    for n in range(10_000):
        record = rng.choice(foreign if n % 10 == 0 else records)
        data = damaged(rng, encoded(mutate(rng, record["payload"])))
        words = [agent, rng.choice([record["argument"] or "", "PreToolUse", "", "nonsense"])][
            : rng.choice([2, 2, 2, 1])
        ]
        variables = {"CRUSH": "1"} if agent == "crush" else {}
        check(agent, *reply(words, data, variables, handle))


@pytest.mark.parametrize("agent", NAMES)
def test_mutated_sessions_are_recorded_without_a_bug(
    agent: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same against a real store: odd names, texts and orders must neither crash nor refuse."""
    rng = random.Random(f"played {agent}")
    monkeypatch.chdir(project)
    records = [record for _, record in recordings(agent)]
    for _ in range(60):
        record = rng.choice(records)
        payload = json.loads(json.dumps(record["payload"]).replace(PROJECT, str(project)))
        payload = mutate(rng, payload)
        variables = {**os.environ, **({"CRUSH": "1"} if agent == "crush" else {})}
        out, err, code = reply([agent, record["argument"] or ""], encoded(payload), variables)
        check(agent, out, err, code)
        assert b"bug in Reprieve" not in out + err, (payload, out, err)
