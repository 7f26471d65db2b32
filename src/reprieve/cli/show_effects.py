"""Effects as lines for people."""

from __future__ import annotations

from reprieve.cli import humane

TYPE_CHECKING = False
if TYPE_CHECKING:
    Json = dict[str, object]


def one_line(effect: Json, *, is_in_log: bool = False) -> str:
    """What it was, what became of it, and whether it can be undone."""
    words = [] if is_in_log else [str(effect["id"])]
    words.append(humane.safe(str(effect["description"])))
    state, undo = str(effect["state"]), effect["undo_state"]
    words.append(f"[{effect['class']}, {state}{f', {undo}' if undo else ''}]")
    if effect["kind"] == "mail" and state in ("done", "unknown"):
        words.append("sent and gone" if state == "done" else "may have been sent")
    elif not undo and state == "done":
        words.append("can be undone" if effect["inverse"] else "can't be undone")
    if effect.get("account"):
        words.append(f"in account: {humane.safe(str(effect['account']))}")
    return "  ".join(words)


def whole(effect: Json) -> list[str]:
    """Everything about one effect, nothing shortened."""
    import json

    lines = []
    for name, value in effect.items():
        if value not in (None, "", []):
            text = value if isinstance(value, str) else json.dumps(value)
            lines.append(f"{name + ':':14} {humane.safe(text)}")
    return lines
