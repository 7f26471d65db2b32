"""Claude Agent SDK: hooks that make every tool call a step that can be undone, and a session store that goes back.

    store = ReprieveSessionStore(ws)
    options = ClaudeAgentOptions(hooks=reprieve_hooks(ws), session_store=store, cwd=ws.root)

All tools are guarded: Bash, edits, MCP, those of sub-agents. A checkpoint that cannot be taken denies the call, and the
model hears why; a hook that fails in any other way blocks it. Runs on asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from claude_agent_sdk import HookMatcher

from reprieve.errors import ReprieveError
from reprieve.frameworks.claude_store import ReprieveSessionStore

if TYPE_CHECKING:
    from reprieve.app.guard import Guard
    from reprieve.app.public import Workspace

__all__ = ["ReprieveSessionStore", "reprieve_hooks"]

_PATIENCE_S = 600.0  # the first checkpoint of a large tree takes its time


def reprieve_hooks(ws: Workspace) -> dict[str, list[HookMatcher]]:
    """For `ClaudeAgentOptions(hooks=...)`; add your own to its lists."""
    calls: dict[tuple[str, str], tuple[str, Guard]] = {}  # by session and call: the sub-agent, and what is open

    async def before(said: Any, call: str | None, context: Any) -> dict[str, Any]:
        id, session = call or said["tool_use_id"], said["session_id"]
        guard = ws.guard(
            name=said["tool_name"], arguments=said["tool_input"], call=id, session=session, agent="claude-sdk"
        )
        try:
            await guard.__aenter__()
        except ReprieveError as e:
            why = "; ".join((f"Reprieve could not take a checkpoint, so this was not run: {e.message}", *e.hints))
            answer = {"permissionDecision": "deny", "permissionDecisionReason": why}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **answer}}
        calls[session, id] = (said.get("agent_id", ""), guard)
        return {}

    async def after(said: Any, call: str | None, context: Any) -> dict[str, Any]:
        return await seal(said["session_id"], call or said["tool_use_id"], failure=said.get("error"))

    async def over(said: Any, call: str | None, context: Any) -> dict[str, Any]:
        """The end of calls that were denied or broken off is not told."""
        session, agent = said["session_id"], said.get("agent_id", "")
        left = [id for (whose, id), (who, _) in calls.items() if (whose, who) == (session, agent)]
        answers = [await seal(session, id) for id in left]
        return next((answer for answer in answers if answer), {})

    async def seal(session: str, id: str, failure: str | None = None) -> dict[str, Any]:
        _, guard = calls.pop((session, id), (None, None))
        error: Exception | None = None if failure is None else RuntimeError(failure)
        try:
            if guard is not None:
                await guard.__aexit__(type(error) if error else None, error, None)
        except ReprieveError as e:
            e.add_note(e.message)
            error = e
        notes = getattr(error, "__notes__", ())
        return {"systemMessage": "Reprieve: " + "; ".join(notes)} if notes else {}

    def each(hook: Any) -> list[HookMatcher]:
        return [HookMatcher(hooks=[hook], timeout=_PATIENCE_S, on_failure="block")]

    ends = {
        "PostToolUse": after,
        "PostToolUseFailure": after,
        "UserPromptSubmit": over,
        "Stop": over,
        "SubagentStop": over,
    }
    return {"PreToolUse": each(before)} | {event: each(hook) for event, hook in ends.items()}
