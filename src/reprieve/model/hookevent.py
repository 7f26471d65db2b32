"""The one neutral value that every agent's payload becomes, and the one that every answer starts from.

Readers (`agents/<name>.py`, `read`) make a `HookEvent` out of what an agent sent; the hook decides; writers
(`answer`) say the decision in the agent's own language. Both sides are pure. Loaded before every tool call:
nothing heavy is imported here.
"""

from __future__ import annotations

from reprieve.model.value import Value

PROMPT = "prompt"  # a person said something: a turn begins
BEFORE = "before"  # a tool is about to run
AFTER = "after"  # it ran
FAILED = "failed"  # it ran and failed, or was refused by somebody else
TURN_END = "turn_end"
SESSION_START = "session_start"
SESSION_END = "session_end"
SUBAGENT_START = "subagent_start"
SUBAGENT_END = "subagent_end"
OTHER = "other"  # known to be of no interest, or not known at all

KINDS = (
    PROMPT,
    BEFORE,
    AFTER,
    FAILED,
    TURN_END,
    SESSION_START,
    SESSION_END,
    SUBAGENT_START,
    SUBAGENT_END,
    OTHER,
)

ALLOW = "allow"
ASK = "ask"
DENY = "deny"

# stdout, stderr, exit code
Reply = tuple[bytes, bytes, int]
SILENT: Reply = (b"", b"", 0)


class HookEvent(Value):
    """What happened, as far as the agent told us. `None` and empty mean: it did not say.

    `call_id` is None for agents that have no such id (Gemini, Copilot CLI, Goose, Crush, Windsurf, OpenHands): pair
    "before" and "after" by session, `parent`, `input_key` and order instead. `parent` names the sub-agent that acts.
    `ended` lists ids of calls that are over by this event though it is not itself an "after" (Claude's batch).
    `is_background`: work goes on after this event, so nothing may be sealed by it. `command` and `prompt` are as
    sent, for the gate to read; `arguments` is redacted and shortened, and the only one of the three to be recorded.
    `is_container`: the call has sub-agents work, whose calls are reported by themselves.
    `tells_end` is False for agents that never say when a call is over: there the next one ends it.
    `can_ask`: the agent puts a question of ours to the person, and runs the call if they say yes.
    `roots`: the folders of the project, for agents whose projects may have several; `cwd` is one of them or inside.
    `is_refused`: of a call that FAILED, somebody said no, so it never ran.
    """

    agent: str
    kind: str
    session: str | None = None
    turn: str | None = None
    call_id: str | None = None
    parent: str | None = None
    tool: str | None = None
    is_read_only: bool = False
    is_background: bool = False
    arguments: dict[str, object] | None = None
    input_key: str = ""
    paths: tuple[str, ...] = ()
    command: str | None = None
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    prompt: str | None = None
    transcript_path: str | None = None
    message_id: str | None = None
    ended: tuple[str, ...] = ()
    error: str | None = None
    raw_event: str = ""
    tells_end: bool = True
    is_container: bool = False
    can_ask: bool = False
    is_refused: bool = False


def matters(event: HookEvent) -> bool:
    """Whether an event has to do with the timeline at all. What only reads costs nothing."""
    if event.kind in (BEFORE, AFTER, FAILED):
        return not event.is_read_only
    return event.kind in (PROMPT, TURN_END, SESSION_END, SUBAGENT_END) or (event.kind == OTHER and bool(event.ended))


class Answer(Value):
    """What we say to the agent: `decision` for the call, why, and a note that its model should read.

    "allow" never means "skip the person's permission prompt": writers stay silent for it, since vouching for a
    call is not ours to do. `is_waiting`: the question is among the approvals, where a person can answer it too.
    """

    decision: str = ALLOW
    reason: str = ""
    note: str = ""
    is_waiting: bool = False


# An agent that is refused something must not learn here how to switch protection off: only a person may do that.
ASK_USER = "Ask the user to run `reprieve doctor` in their own terminal."
NO_REASON = f"Blocked by Reprieve, which gave no reason. Nothing ran. {ASK_USER}"


def reason_of(answer: Answer, *, cannot_ask: bool = False) -> str:
    """The reason, never empty (some agents take an empty one for a failed hook and run the tool)."""
    reason = answer.reason.strip() or NO_REASON
    if cannot_ask and answer.decision == ASK:
        reason += " " if reason.endswith(".") else ". "
        # The person decides over our own channel, because this agent has no way to ask.
        if answer.is_waiting:
            reason += "This agent's hooks cannot ask: see `reprieve approvals`, then let it try again."
        else:
            reason += "This agent's hooks cannot ask, so the step is refused."
    return reason
