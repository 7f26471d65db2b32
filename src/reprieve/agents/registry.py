"""Find an agent's module by name, find out who really called, read what it sent. Pure but for the import itself.

Loaded before every tool call: only the one agent's module is imported.
"""

from __future__ import annotations

from reprieve.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol, cast

    from reprieve.agents.machine import Machine, Target
    from reprieve.model.hookevent import Answer, HookEvent, Reply

    class Agent(Protocol):
        """What every `agents/<name>.py` offers. `read` and `answer` are pure and never raise; the hook needs these."""

        NAME: str
        TITLE: str
        SCOPES: Sequence[str]

        def detect(self, machine: Machine) -> bool:
            """True if the agent is on this machine. May look at the disk."""

        def read(self, payload: Mapping[str, object], event: str | None = None) -> HookEvent:
            """A payload, whatever it holds, as a HookEvent. `event` is the name given on the command line."""

        def answer(self, event: HookEvent, answer: Answer) -> Reply:
            """stdout, stderr and exit code that say `answer` in the agent's language."""

        def carries_note(self, event: HookEvent) -> bool:
            """True if the agent's model will read `Answer.note` on this event."""

        def targets(self, machine: Machine, scope: str) -> Sequence[Target]:
            """The files to write to."""

        def plan_install(self, text: str | None, *, target: Target, machine: Machine) -> str:
            """The file's new text. Raises Misconfigured."""

        def plan_remove(self, text: str, *, target: Target, before: str | None, is_before_known: bool) -> str | None:
            """The file's text without us; None: the file goes away."""

        def left_to_do(self, machine: Machine, scope: str) -> Sequence[str]:
            """What only the person can do after installing; empty if nothing."""


NAMES = (
    "claude-code", "codex", "gemini", "cursor", "opencode", "copilot", "vscode", "cline", "windsurf", "goose", "crush",
    "openhands",
)  # fmt: skip

# Events that Gemini alone has; it sends Claude's field names otherwise.
_GEMINI = ("BeforeTool", "AfterTool", "BeforeAgent", "AfterAgent", "BeforeModel", "AfterModel", "PreCompress")
_MAX_PAYLOAD = 64 * 1024 * 1024


def load(name: str) -> Agent:
    """The module of an agent. Raises Usage for a name that we don't know."""
    if name not in NAMES:
        hints = [f"did you mean {n}?" for n in NAMES if name and (n.startswith(name) or name.startswith(n))]
        raise Usage(f"no agent is called {name!r}", hints=[*hints, f"one of: {', '.join(NAMES)}"])
    module = __import__(f"reprieve.agents.{name.replace('-', '_')}", fromlist=("NAME",))
    return cast("Agent", module) if TYPE_CHECKING else module


def parse(data: bytes) -> tuple[dict[str, object], str | None]:
    """The payload on stdin, and what is wrong with it (None: nothing). Never raises; a broken one is empty."""
    from reprieve.model.quickjson import loads

    if len(data) > _MAX_PAYLOAD:
        return {}, f"the payload has {len(data):,} bytes"
    try:
        # Cursor on Windows sends a byte order mark.
        payload = loads(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        return {}, f"the payload is not JSON: {error}"
    if not isinstance(payload, dict):
        return {}, f"the payload is not an object but {type(payload).__name__}"
    return payload, None


def host_of(name: str, payload: Mapping[str, object], variables: Mapping[str, str]) -> str:
    """Who really called. Several programs read each other's configuration and run each other's hooks.

    `name` is what the command line says (the file that the entry is in); the payload's shape outranks it.
    """
    if "cursor_version" in payload:
        return "cursor"
    if "clineVersion" in payload or ("hookName" in payload and "taskId" in payload):
        return "cline"
    if "agent_action_name" in payload:
        return "windsurf"
    if "toolName" in payload or ("sessionId" in payload and isinstance(payload.get("timestamp"), int)):
        return "copilot"
    if "event_type" in payload:
        return "openhands"
    event = payload.get("hook_event_name") or payload.get("hookEventName")
    if event in _GEMINI:
        return "gemini"
    if name == "gemini" or name == "opencode":
        return name
    if isinstance(event, str) and isinstance(payload.get("timestamp"), str):
        # Claude sends no time. In the file that Copilot CLI and VS Code share, Copilot sends its other spelling; in
        # Claude's files both look alike, but only VS Code gives calls an id, and transcripts to every event.
        if name in ("copilot", "vscode") or "tool_use_id" in payload or "hookEventName" in payload:
            return "vscode"
        transcript = payload.get("transcript_path")
        return "vscode" if isinstance(transcript, str) and "copilot/session-state" not in transcript else "copilot"
    if "turn_id" in payload and "model" in payload:
        return "codex"
    if "event" in payload and not event:
        if "working_dir" in payload:
            return "goose"
        if variables.get("CRUSH") == "1" or "cwd" in payload:
            return "crush"
    return name if name in NAMES else "claude-code"
