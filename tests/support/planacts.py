"""Plans and conversations as a program, for tests that kill it.

    planacts ACT ROOT

`step` runs a step that fails, and so takes itself back; `undo` and `redo` move a turn. Each first finishes what an
earlier one left, and prints `ack` when it is done. `look` prints what there is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import reprieve


def main(argv: list[str]) -> int:
    act, root = argv
    with reprieve.open(root) as ws, reprieve.Conversation(ws, "chat") as chat:
        {"make": make, "step": step, "undo": undo, "redo": redo, "look": look}[act](ws, chat, Path(root))
    if act != "look":
        os.write(1, b"ack\n")
    return 0


def make(ws: reprieve.Workspace, chat: reprieve.Conversation, root: Path) -> None:
    for name in ("a", "b"):
        with chat.turn(name):
            for n in range(3):
                (root / f"{name}{n}").write_text(name * 100)
            (root / "both").write_text(name)
            chat.append({"role": "assistant", "content": f"made {name}"})


def step(ws: reprieve.Workspace, chat: reprieve.Conversation, root: Path) -> None:
    plan = ws.plan("p")
    if plan.steps.get("s") not in (None, "taken back"):
        plan.replan("s")
    try:
        with plan.step("s"):
            (root / "half").mkdir()
            for n in range(3):
                (root / "half" / f"{n}").write_text("half done")
            (root / "both").write_text("half done")
            (root / "a0").unlink()
            raise ValueError
    except ValueError:
        return


def undo(ws: reprieve.Workspace, chat: reprieve.Conversation, root: Path) -> None:
    if not chat.redo_depth:
        chat.undo()


def redo(ws: reprieve.Workspace, chat: reprieve.Conversation, root: Path) -> None:
    if chat.redo_depth:
        chat.redo()


def look(ws: reprieve.Workspace, chat: reprieve.Conversation, root: Path) -> None:
    said = [message["content"] for message in chat.messages]
    print(json.dumps({"said": said, "steps": ws.plan("p").steps, "redo": chat.redo_depth}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
