"""Undo by a call of an MCP server's tool: the server is started again, or asked at its URL.

    inverse = {"kind": "mcp", "tool": ..., "arguments": {...}, "is_idempotent": false, "is_modern": false,
               "server": {"argv": [...], "cwd": ..., "path": PATH, "set": {NAME: value}, "env": [names]}
                       | {"url": ..., "headers": {name: value or credential reference}, "fingerprints": {...}}}

The gateway wrote down how the server was started; nothing of it comes from a message. It gets the small environment of
every reversing program, the PATH that it was found by, and the variables that were named.
"""

from __future__ import annotations

import os

from reprieve.effects import credentials
from reprieve.effects.command import environment
from reprieve.effects.driver import READY, UNCLEAR, Check, Outcome
from reprieve.effects.mcp_client import Unanswered, call_by_http, call_by_stdio
from reprieve.errors import Refused
from reprieve.model.effect import FAILED, MANUAL, UNDONE, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.effects.mcp_client import Answer
    from reprieve.model.effect import Effect, Json

_SHOWN = 500
_WAIT_S = 60.0


class McpDriver:
    """Calls the tool. `clean` takes secrets out of what it answers, which is kept."""

    def __init__(self, *, sign: Callable[[bytes], str], clean: Callable[[str], str] = str) -> None:
        self._sign, self._clean = sign, clean

    def says(self, effect: Effect) -> str:
        import json
        import shlex

        inverse, server = effect.inverse or {}, _server(effect)
        call = f"{inverse.get('tool')} {json.dumps(inverse.get('arguments'), ensure_ascii=True)}"
        if "url" in server:
            return f"call {call} of the MCP server at {server['url']}"
        given = [f"{name}={value}" for name, value in _map(server.get("set")).items()]
        names = [f"{name} from your environment" for name in _texts(server.get("env"))]
        more = "".join(f", {each}" for each in (*given, *names, f"PATH={server.get('path')}"))
        return f"start {shlex.join(_texts(server.get('argv')))} (in {server.get('cwd')}{more}) and call {call}"

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        server = _server(effect)
        if "url" in server:
            try:
                self._headers(server)
            except Refused as e:
                return Check(UNCLEAR, e.message)
            return Check(READY)
        argv = _texts(server.get("argv"))
        if not argv or not os.access(argv[0], os.X_OK):
            return Check(UNCLEAR, f"the server's program {argv[0] if argv else ''} is not there")
        if not os.path.isdir(str(server.get("cwd"))):
            return Check(UNCLEAR, f"the folder {server.get('cwd')} is not there")
        missing = [name for name in _texts(server.get("env")) if name not in os.environ]
        if missing:
            return Check(UNCLEAR, f"the server needs the variable {missing[0]}, which is not set")
        return Check(READY)

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        try:
            answer = self._call(effect)
        except OSError as e:
            return Outcome(FAILED, f"the server could not be started: {e.strerror}")
        except Refused as e:
            return Outcome(FAILED, e.message)
        except Unanswered as e:
            return Outcome(MANUAL if e.is_sent else FAILED, e.message)
        said = "".join(c if c.isprintable() else " " for c in self._clean(answer.text()))[:_SHOWN]
        if answer.is_error:  # it ran, and may have done a part of its work
            return Outcome(MANUAL, f"the tool answered with an error; how far it came is not known: {said}")
        if answer.unfinished:  # nobody is here to answer what it asks, or to see a task's end
            return Outcome(MANUAL, f"whether it is undone is not known: {self._clean(answer.unfinished)}"[:_SHOWN])
        return Outcome(UNDONE, said)

    def resolve(self, effect: Effect) -> str:
        return UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        return bool((effect.inverse or {}).get("is_idempotent"))

    def _call(self, effect: Effect) -> Answer:
        inverse, server = effect.inverse or {}, _server(effect)
        tool, arguments = str(inverse.get("tool")), _map(inverse.get("arguments"))
        is_modern = bool(inverse.get("is_modern"))
        if "url" in server:
            return call_by_http(
                str(server["url"]), self._headers(server), tool=tool, arguments=arguments, is_modern=is_modern,
                timeout_s=_WAIT_S,
            )  # fmt: skip
        env = environment(_texts(server.get("env")))
        env |= {name: str(value) for name, value in _map(server.get("set")).items()}
        env["PATH"] = str(server.get("path") or env["PATH"])
        return call_by_stdio(
            _texts(server.get("argv")), cwd=str(server.get("cwd")), env=env, tool=tool, arguments=arguments,
            is_modern=is_modern, timeout_s=_WAIT_S,
        )  # fmt: skip

    def _headers(self, server: Json) -> dict[str, str]:
        known, found = _map(server.get("fingerprints")), {}
        for name, value in _map(server.get("headers")).items():
            text = str(value)
            if credentials.is_reference(text):
                given = credentials.resolve(text)
                if text in known and self._sign(given.encode()) != known[text]:
                    raise Refused(f"the credential '{text}' is another one than when the effect was made")
                text = given
            found[name] = text
        return found


def _server(effect: Effect) -> Json:
    return _map((effect.inverse or {}).get("server"))


def _map(value: object) -> Json:
    return dict(value) if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, (list, tuple)) else []
