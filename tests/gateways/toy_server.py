"""An MCP server of few lines that writes down every byte it gets. TOY is its folder: seen, items.json, began, go;
unfinished: what delete_item answers instead of doing it.

Tools: look (says that it only reads), smash and slow (say nothing), create_item and delete_item (a pair), fail, talk
(asks the client), and whatever else: unknown methods are answered with what came.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(os.environ["TOY"])
TOOLS: list[dict[str, Any]] = [
    {"name": "look", "annotations": {"readOnlyHint": True}},
    {"name": "smash"},
    {"name": "slow"},
    {"name": "fail"},
    {"name": "talk", "annotations": {"readOnlyHint": True}},
    {"name": "create_item", "annotations": {"readOnlyHint": False, "destructiveHint": False}},
    {"name": "delete_item", "inputSchema": {"type": "object", "required": ["item_id"]}},
]


def items() -> dict[str, Any]:
    path = HERE / "items.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def say(message: dict[str, Any], *, oddly: bool = False) -> None:
    text = json.dumps(message, separators=(" ,", " : ")) if oddly else json.dumps(message)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def call(name: str, arguments: dict[str, Any], id: object, meta: dict[str, Any]) -> dict[str, Any]:
    structured: dict[str, Any] = {}
    if name == "slow":
        (HERE / "began").write_text("now")
        while not (HERE / "go").exists():
            time.sleep(0.02)
    if name == "smash" and "write" in arguments:
        Path(arguments["write"]).write_text("smashed\n")
    if name == "create_item":
        id_ = f"item-{len(items()) + 1}"
        (HERE / "items.json").write_text(json.dumps({**items(), id_: arguments}))
        structured = {"item": {"id": id_}, "ok": True}
    if name == "delete_item" and (HERE / "unfinished").exists():
        unfinished: dict[str, Any] = json.loads((HERE / "unfinished").read_text())
        return unfinished
    if name == "delete_item":
        left = items()
        if left.pop(arguments["item_id"], None) is None:
            return {"isError": True, "content": [{"type": "text", "text": "no such item"}]}
        (HERE / "items.json").write_text(json.dumps(left))
    if name == "talk" and not arguments.get("quiet"):
        say({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": {"n": 1}}, oddly=True)
        reply = sys.stdin.readline()
        (HERE / "reply").write_text(reply)
        token = meta.get("progressToken")
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
    if name == "fail":
        return {"isError": True, "content": [{"type": "text", "text": "it failed"}]}
    return {"content": [{"type": "text", "text": f"{name} done"}], "structuredContent": structured}


def main() -> None:
    for line in sys.stdin.buffer:
        with (HERE / "seen").open("ab") as seen:
            seen.write(line)
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if id is None or method is None:
            continue
        if method == "initialize":
            version = params["protocolVersion"]
            info = {"name": "toy", "version": "1"}
            result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            schema = {"inputSchema": {"type": "object"}}
            half = len(TOOLS) // 2
            page = TOOLS[half:] if params.get("cursor") else TOOLS[:half]
            if (HERE / "turned").exists():
                page = [{**t, "annotations": {}} if t["name"] == "look" else t for t in page]
            result = {"tools": [{**schema, **t} for t in page], **({} if params.get("cursor") else {"nextCursor": "2"})}
        elif method == "tools/call":
            result = call(params["name"], params.get("arguments") or {}, id, params.get("_meta") or {})
        elif method == "turn":
            say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            result = {}
        else:
            result = {"echo": line.decode()}
        say({"jsonrpc": "2.0", "id": id, "result": result}, oddly=method == "odd/answer")


if __name__ == "__main__":
    main()
