"""Answer one call of a coding agent's hook: its words on standard input, the answer on standard output.

Never ends with a traceback, and never with an exit code that the agent's own language does not give a meaning: in most
agents an exit of 2 blocks the call, in Copilot any but 0 does. So this answers for all of its own errors. Before a call
it fails closed: whatever goes wrong, the agent is told to block the call. Every other event goes on.
"""

from __future__ import annotations

import os
import sys

from reprieve.agents import registry
from reprieve.errors import ReprieveError
from reprieve.model.hookevent import (
    ALLOW,
    ASK,
    ASK_USER,
    BEFORE,
    DENY,
    OTHER,
    PROMPT,
    SESSION_END,
    SESSION_START,
    SUBAGENT_START,
    Answer,
    HookEvent,
    matters,
)
from reprieve.model.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from reprieve.agents.registry import Agent
    from reprieve.model.hookevent import Reply

_MOST = 64 * 1024 * 1024 + 1  # one byte more than a payload may have, so that a longer one is noticed
# We answer within the agent's own limit (60 s, in Cline's extension 30 s): after it the call runs.
_LIMIT_S = 55
_CLINE_LIMIT_S = 25
# Agents give these events less time than tool calls (agents/*.py).
_SHORT_S = {PROMPT: 15, SESSION_START: 15, SUBAGENT_START: 15, SESSION_END: 5}


class OverBudget(KeyboardInterrupt):
    """The time is up. Like an interrupt, so that what was read so far is kept for the next try."""


def serve(words: Sequence[str], *, is_last: bool = False) -> int:
    """Answer on the standard streams; the exit code. `is_last`: this process ends with the answer."""
    if os.isatty(0):
        _write(2, b"reprieve hook is called by coding agents, with a payload on standard input\n"
                  b"Hint: install it with: reprieve protect\n")  # fmt: skip
        return 0
    data = _read()
    out, err, code = reply(words, data, os.environ, is_last=is_last)
    problem = _write(1, out)
    if problem and _is_before(words, data, os.environ):
        err += f"Blocked by Reprieve: its answer can't be written: {problem}. Nothing ran. {ASK_USER}\n".encode()
        code = 2
    _write(2, err)
    return code


def reply(
    words: Sequence[str],
    data: bytes,
    variables: Mapping[str, str],
    handle: Callable[..., str] | None = None,
    *,
    is_last: bool = False,
) -> Reply:
    """The answer to one call of the hook. Never raises. `handle` is `app.hooks.handle` unless a test gives another."""
    name = words[0] if words else ""
    named = words[1] if len(words) > 1 else None
    said: list[str] = []
    try:
        payload, problem = registry.parse(data)
        if isinstance(token := payload.get("reprieve_probe"), str):
            return _probed(token, variables)
        agent = registry.load(registry.host_of(name, payload, variables))
        event = agent.read(payload, named)
        if problem and (event.kind == BEFORE or (event.kind == OTHER and not named)):
            # It may be about a call. VS Code, which may have sent it, knows an answer to Copilot by this name alone.
            event = event.replace(kind=BEFORE, raw_event="PreToolUse")
        answer = _decide(agent, event, variables, said, handle, problem=problem, is_last=is_last)
        out, err, code = agent.answer(event, answer)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last resort
        out, err, code = _refuse(words, data, variables, f"{type(error).__name__}: {error}")
    lines = "".join(f"reprieve: {line}\n" for line in said)
    return out, err + lines.encode("utf-8", "backslashreplace"), code


def _refuse(words: Sequence[str], data: bytes, variables: Mapping[str, str], why: str) -> Reply:
    """The answer if there is a bug in what makes answers."""
    text = f"this is a bug in Reprieve: {why}"
    if not _is_before(words, data, variables):
        return b"", f"reprieve: this step could not be recorded: {text}\n".encode("utf-8", "backslashreplace"), 0
    text = f"Blocked by Reprieve: {text}. Nothing ran. {ASK_USER}"
    name = words[0] if words else ""
    try:
        return registry.load(name).answer(
            HookEvent(agent=name, kind=BEFORE, raw_event="PreToolUse"), Answer(DENY, text)
        )
    except Exception:  # noqa: BLE001 - what most agents understand
        return b"", text.encode("utf-8", "backslashreplace") + b"\n", 2


def _is_before(words: Sequence[str], data: bytes, variables: Mapping[str, str]) -> bool:
    """True if this is about a call that the agent is going to make, or if nobody knows."""
    if variables.get("REPRIEVE_DISABLED") == "1":
        return False
    try:
        payload, problem = registry.parse(data)
        event = registry.load(registry.host_of(words[0], payload, variables)).read(payload, *words[1:2])
    except Exception:  # noqa: BLE001 - whatever it is that does not work
        return True
    return event.kind == BEFORE or (problem is not None and len(words) < 2)


def quick_reply(
    words: Sequence[str], data: bytes, variables: Mapping[str, str], begin: Callable[..., bool]
) -> Reply | None:
    """The answer of the resident helper, None if an event has to be handled by a command.

    `begin` is asked to promise the checkpoint before a call (`app.promising`); False: it can't. Never raises.
    """
    if not 1 <= len(words) <= 2 or words[-1].startswith("-") or variables.get("REPRIEVE_DISABLED") == "1":
        return None
    try:
        payload, problem = registry.parse(data)
        if problem or "reprieve_probe" in payload:
            return None
        agent = registry.load(registry.host_of(words[0], payload, variables))
        event = agent.read(payload, words[1] if len(words) > 1 else None)
        if matters(event) and not begin(event, can_note=agent.carries_note(event)):
            return None
        return agent.answer(event, Answer())
    except Exception:  # noqa: BLE001 - the command that handles it says what is wrong
        return None


def _probed(token: str, variables: Mapping[str, str]) -> Reply:
    """`doctor` asks whether this is really us, and whether we could do our work."""
    from reprieve.agents.reading import say
    from reprieve.app import places
    from reprieve.store.local import LocalStore
    from reprieve.version import VERSION

    problem = ""
    if variables.get("REPRIEVE_DISABLED") == "1":
        problem = "REPRIEVE_DISABLED=1 switches it off"
    try:
        LocalStore.open(places.home()).close()
    except ReprieveError as error:
        problem = error.message
    return say({"reprieve_probe": token, "version": VERSION, "problem": problem})


def _decide(
    agent: Agent,
    event: HookEvent,
    variables: Mapping[str, str],
    said: list[str],
    handle: Callable[..., str] | None,
    *,
    problem: str | None,
    is_last: bool,
) -> Answer:
    if variables.get("REPRIEVE_DISABLED") == "1":
        text = "Reprieve is switched off (REPRIEVE_DISABLED=1): no step is protected"
        said.append(text)
        return Answer(note=text if event.kind in (PROMPT, SESSION_START) and agent.carries_note(event) else "")
    if problem:
        return _failed(agent, event, f"the agent sent something unreadable: {problem}", said)
    if not matters(event):
        return Answer()
    try:
        from reprieve.files import afterwards

        if is_last and not afterwards.is_expected():  # a process of its own, which the helper tells nothing
            from reprieve.app.hook_folders import look_ahead

            look_ahead(event, variables)
            if event.kind == BEFORE:
                from reprieve.app.alone import promise_alone

                if promise_alone(event, variables, can_note=agent.carries_note(event)):
                    return Answer()
        _have_site()
        from reprieve.app import hooks

        with _Budget(event):
            can_note = agent.carries_note(event)
            reporter = _Said(said)
            note = (handle or hooks.handle)(
                event, can_note=can_note, variables=variables, reporter=reporter, is_last=is_last
            )
            return Answer(note=note)
    except OverBudget as over:
        why = str(over)
    except KeyboardInterrupt:
        why = "interrupted"
    except ReprieveError as error:
        if isinstance(decision := getattr(error, "decision", None), str):  # the gate: app.gating.Stopped
            return Answer(decision, error.message, getattr(error, "note", ""), is_waiting=decision == ASK)
        why = error.message
    except OSError as error:
        why = f"the system refused: {error.strerror or error}"
    except Exception as error:  # noqa: BLE001 - said in the agent's own language
        why = f"this is a bug in Reprieve: {type(error).__name__}: {error}"
    return _failed(agent, event, why, said)


def _have_site() -> None:
    """Make up for what the launcher leaves out (`run_lean`): packages of others may be needed from here on."""
    if sys.flags.no_site and "site" not in sys.modules:
        import site

        site.main()


def _failed(agent: Agent, event: HookEvent, why: str, said: list[str]) -> Answer:
    """No checkpoint: what the person chose to happen then. The error's hints are for a person, not for the agent."""
    if event.kind != BEFORE:
        # nothing is about to happen that could be refused; but nobody shall believe that all is well
        said.append(f"this step could not be recorded: {why}")
        note = f"Reprieve could not record this step: {why}. {ASK_USER}" if agent.carries_note(event) else ""
        return Answer(note=note)
    decision = _policy(said)
    if decision == ALLOW:
        said.append(f"this step is not protected: {why}")
        note = f"Reprieve could not save a checkpoint, so this step is not protected: {why}. {ASK_USER}"
        return Answer(note=note if agent.carries_note(event) else "")
    return Answer(decision, f"Blocked by Reprieve: no checkpoint could be saved: {why}. Nothing ran. {ASK_USER}")


def _policy(said: list[str]) -> str:
    from reprieve.app import config

    try:
        return config.load().hook_on_failure
    except ReprieveError as error:
        said.append(error.message)
        return config.Config().hook_on_failure


class _Budget:
    """Ends what is inside when the time is up. The timer is the kernel's: no thread, no import."""

    def __init__(self, event: HookEvent) -> None:
        self.limit = _SHORT_S.get(event.kind, _CLINE_LIMIT_S if event.agent == "cline" else _LIMIT_S)
        self.old: object = None

    def __enter__(self) -> None:
        import _signal

        from reprieve.app import config

        budget = config.load().hook_budget_s
        self.seconds = min(budget or self.limit, self.limit)

        def stop(_number: int, _frame: FrameType | None) -> None:
            raise OverBudget(f"it took longer than {self.seconds} s")

        self.old = _signal.signal(_signal.SIGALRM, stop)
        # again and again: whoever keeps what was read so far may wait for a lock by then
        _signal.setitimer(_signal.ITIMER_REAL, self.seconds, max(2, self.limit - self.seconds))

    def __exit__(self, *_: object) -> None:
        import _signal

        _signal.setitimer(_signal.ITIMER_REAL, 0)
        _signal.signal(_signal.SIGALRM, self.old)


class _Said(Reporter):
    """What the core has to say goes to standard error, where agents keep it in their logs."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def note(self, text: str) -> None:
        self._said.append(text)

    def warn(self, text: str) -> None:
        self._said.append(text)


def _read() -> bytes:
    parts = []
    left = _MOST
    try:
        while left > 0 and (part := os.read(0, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    except OSError as error:  # standard input is closed
        _write(2, f"reprieve: no payload: {error.strerror}\n".encode())
    return b"".join(parts)


def _write(fd: int, data: bytes) -> str:
    """Why it can't be written, "" if it is. Nobody reads it where the agent went away."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        return error.strerror or str(error)
    return ""
