"""How each agent's conversation can be taken back, and what to say where it can't. Pure.

claude-code  a new session file that ends earlier      claude_transcript.fork
codex        `thread/fork` of its app server           codex_transcript.fork_request (or .fork, a file)
opencode     POST to its running server                opencode_request
gemini       a new session file that ends earlier      gemini_transcript.fork
the others   no way that they support
"""

from __future__ import annotations

from reprieve.errors import Misconfigured, Refused
from reprieve.model.value import Value

_UNSUPPORTED = {
    "cursor": "Cursor keeps conversations in a database of its own and offers no way to rewind them from outside",
    "copilot": "Copilot CLI offers no way to rewind a session from outside; use its own /rewind",
    "vscode": "VS Code offers no way to rewind a chat from outside; use Restore Checkpoint in the chat",
    "cline": "Cline rewinds a task only by itself; use Restore in the task",
    "windsurf": "Windsurf keeps conversations encrypted and offers no way to rewind them from outside",
    "goose": "Goose offers no supported way to rewind a session from outside",
    "crush": "Crush offers no way to rewind a session from outside",
    "openhands": "OpenHands rewinds a conversation only through its SDK (navigate_to, fork)",
}
SUPPORTED = ("claude-code", "codex", "opencode", "gemini")


class Request(Value):
    """An HTTP request to an agent's own server on this machine."""

    method: str
    path: str
    body: dict[str, object]


def need_support(agent: str) -> None:
    """Raises Refused, with the reason in words, for an agent whose conversation can't be taken back."""
    if agent not in SUPPORTED:
        reason = _UNSUPPORTED.get(agent, f"the conversation of {agent!r} can't be rewound from outside")
        raise Refused(reason, hints=["roll back the files alone: --files; the agent is told at its next step"])


def opencode_request(session: str, message: str) -> Request:
    """Fork the session before a message. Not `revert`: that would also restore files, from opencode's own snapshot."""
    for name in (session, message):
        if not name or not all(c.isalnum() or c in "_-" for c in name):
            raise Misconfigured(f"{name!r} is no id of opencode's")
    return Request(method="POST", path=f"/session/{session}/fork", body={"messageID": message})
