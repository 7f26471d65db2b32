"""A model endpoint on loopback that always does the same: one shell call, then "Done."

It speaks to Codex and to Claude Code, so that their real programs can be driven without a network or a key. With it
comes a stand-in for our command that reads, answers, and writes down what each hook was called with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMAND = "echo hi > made.txt"
SRC = Path(__file__).resolve().parents[2] / "src"

_STANDIN = """#!{python}
import json, os, sys
sys.path.insert(0, {src!r})
from reprieve.agents import registry
from reprieve.model.hookevent import Answer
payload, problem = registry.parse(sys.stdin.buffer.read())
agent = registry.load(registry.host_of(sys.argv[2], payload, os.environ))
event = agent.read(payload, sys.argv[3])
with open({log!r}, "a") as log:
    log.write(json.dumps({{"argv": sys.argv[1:], "payload": payload, "problem": problem, "agent": agent.NAME,
        "kind": event.kind, "tool": event.tool, "command": event.command, "call_id": event.call_id,
        "session": event.session, "parent": event.parent, "turn": event.turn, "cwd": event.cwd,
        "transcript_path": event.transcript_path, "prompt": event.prompt}}) + "\\n")
answer = Answer(**json.load(open({answers!r})).get(event.kind, {{}}))
out, err, code = agent.answer(event, answer)
sys.stdout.buffer.write(out)
sys.stderr.buffer.write(err)
sys.exit(code)
"""


class StandIn:
    """Our command, as far as reading and answering go."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path = folder / "reprieve"
        self.log = folder / "log"
        self.answers = folder / "answers.json"
        self.path.write_text(
            _STANDIN.format(python=sys.executable, src=str(SRC), log=str(self.log), answers=str(self.answers))
        )
        self.path.chmod(0o755)
        self.answer({})

    def answer(self, by_kind: Mapping[str, Mapping[str, str]]) -> None:
        self.answers.write_text(json.dumps(by_kind))
        self.log.write_text("")

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class Model:
    """What was asked of the model, in order, and where it listens."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[dict[str, Any]] = []


@contextmanager
def scripted_model() -> Iterator[Model]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

        def do_GET(self) -> None:
            self.reply("application/json", b'{"data": [], "models": []}')

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                asked = json.loads(body)
            except ValueError:
                asked = {}
            if "count_tokens" in self.path:
                self.reply("application/json", b'{"input_tokens": 1}')
            elif "input" in asked:
                model.asked.append(asked)
                self.stream(codex_events(asked, len(model.asked)))
            elif "messages" in asked:
                model.asked.append(asked)
                events = claude_events(asked, len(model.asked))
                if asked.get("stream"):
                    self.stream(events)
                else:
                    self.reply("application/json", json.dumps(events[0]["message"]).encode())
            else:
                self.reply("application/json", b"{}")

        def stream(self, events: Sequence[Mapping[str, Any]]) -> None:
            lines = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events]
            self.reply("text/event-stream", "".join(lines).encode())

        def reply(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model = Model(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def claude_variables(model: Model, home: Path) -> dict[str, str]:
    """By which Claude asks this model, and keeps all that is its own in a home of its own."""
    return {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def codex_events(asked: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    """One shell call in answer to a message, a closing word in answer to its result."""
    last = asked["input"][-1]
    if last.get("type") == "message":
        tools = [tool.get("name") for tool in asked.get("tools", [])]
        name, arguments = ("exec_command", {"cmd": COMMAND})
        if "shell_command" in tools:
            name, arguments = "shell_command", {"command": COMMAND}
        item: dict[str, Any] = {
            "type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": name,
            "arguments": json.dumps(arguments),
        }  # fmt: skip
    else:
        content = [{"type": "output_text", "text": "Done."}]
        item = {"type": "message", "id": f"msg_{n}", "role": "assistant", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": f"resp_{n}"}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": f"resp_{n}", "usage": usage}},
    ]


def claude_events(asked: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    content = asked["messages"][-1]["content"]
    has_result = isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
    has_shell = any(tool.get("name") == "Bash" for tool in asked.get("tools", []))
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": f"msg_{n}", "type": "message", "role": "assistant", "model": asked.get("model"), "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    delta: dict[str, Any]
    if has_shell and not has_result:
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {}}
        call = json.dumps({"command": COMMAND, "description": "make a file"})
        delta, stop = {"type": "input_json_delta", "partial_json": call}, "tool_use"
    else:
        block = {"type": "text", "text": ""}
        delta, stop = {"type": "text_delta", "text": "Done."}, "end_turn"
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def run(argv: Sequence[str], cwd: Path, variables: Mapping[str, str]) -> str:
    """Run an agent to its end; its output. Nothing of the caller's own sessions and keys reaches it."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    result = subprocess.run(
        argv, cwd=cwd, env={**kept, **variables}, stdin=subprocess.DEVNULL, capture_output=True, timeout=180
    )
    output = (result.stdout + result.stderr).decode(errors="replace")
    assert result.returncode == 0, output
    return output
