"""What passes between an MCP client and its server, message by message: tool calls stop here, all else goes on.

    client ──▶ tools/call ──▶ judged ──▶ read: on │ go: checkpoint, intent, on │ else answered here
    client ◀── answer     ◀── outcome written, step sealed ◀── server

Knows no pipes and no sockets: lines come in, lines go out by two functions. What it does not have to change it passes
on byte for byte. What it can't read for certain does not reach the server: another reader might see a tool call in it.
"""

from __future__ import annotations

import json
import os

from reprieve.app.mcp_calls import PASS, WAIT, Call, Look
from reprieve.effects.mcp_client import META, Answer, answer_of
from reprieve.errors import Refused, ReprieveError
from reprieve.gateways.mcp_lines import is_id, key_of, read
from reprieve.model.hookevent import ASK_USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from reprieve.app.mcp_calls import Begun, ToolCalls
    from reprieve.model.reporter import Reporter

    Json = dict[str, Any]

_PARSE, _INVALID, _PARAMS = -32700, -32600, -32602  # JSON-RPC's numbers
# what keeps a call from being protected; ValueError and RecursionError: text or nesting that can't be written down
_TROUBLE = (ReprieveError, OSError, ValueError, RecursionError)
_FORM = "reprieve"
_PAGES = 100  # of a list of tools
# How long what changes after a call was called off is its own. Many servers never answer one, and who calls one off is
# often a person who works on by hand: in doubt it is theirs, so this is only for what was being written just then.
LATE_S = 10.0
_CALLED_OFF = "the client called it off; it may have happened"


def _escaped(text: str) -> str:
    """All of it, and nothing that could move a cursor or turn the writing round."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Session:
    """One client and one server."""

    def __init__(
        self,
        calls: ToolCalls,
        *,
        name: str,
        to_server: Callable[[bytes], None],
        to_client: Callable[[bytes], None],
        reporter: Reporter,
        clock: Callable[[], float],
        is_off: bool = False,
    ) -> None:
        """`name` is this session's own, unique. `clock` counts seconds. `is_off`: pass all on, protect nothing."""
        self._clock = clock
        self._calls, self._name, self._is_off = calls, name, is_off
        self._to_server, self._to_client, self._reporter = to_server, to_client, reporter
        self.tools: dict[str, Json] = {}
        self._is_listed = False
        self._is_stale = False  # what the server said of its tools may not hold any more
        self._listing: list[Callable[[], None]] = []  # calls that wait for the list
        self._asked: dict[str, str] = {}  # the client's requests whose answers teach us something → method
        self._ours: dict[str, Callable[[Json], None]] = {}
        self._running: dict[str, Begun] = {}
        self._late: dict[str, tuple[Begun, float]] = {}  # called off, but the server may be at it still; until when
        # the server asked back, and the client may make the same call again; several may look the same
        self._resumable: dict[str, list[Begun]] = {}
        self._forms: dict[str, tuple[Call, Look]] = {}  # by the state that comes back with a form's answer
        self._waiting: set[str] = set()  # calls that were not sent on yet
        self._open: set[str] = set()  # other requests that the server may still answer
        self._roots_asked: set[str] = set()  # the server's questions for the client's folders
        self._can_ask = self.is_modern = False
        self._count = 0

    # -- from the client

    def from_client(self, line: bytes) -> None:
        """One line with its end."""
        if not line.strip():
            return
        try:
            message = read(line)
        except ValueError as e:
            self._error(None, _PARSE, f"not passed on: {e}")
            return
        if isinstance(message, list):
            self._batch(line, message)
        elif isinstance(message, dict):
            self._message(line, message)
        else:
            self._error(None, _INVALID, "not passed on: neither an object nor a list")

    def _batch(self, line: bytes, messages: list[Any]) -> None:
        """Of an old revision of the protocol; a call in one can't be held back alone."""
        if all(isinstance(each, dict) and each.get("method") != "tools/call" for each in messages):
            keys = [key_of(each["id"]) for each in messages if each.get("id") is not None and "method" in each]
            if len(set(keys)) != len(keys):
                self._error(None, _INVALID, "not passed on: an id is there twice")
                return
            before = set(self._open)
            if not all(map(self._is_new, messages)):
                self._open = before
                return
            for each in messages:
                self._notice(each)
            self._to_server(line)
            return
        for each in messages:
            if isinstance(each, dict) and "id" in each and "method" in each:
                self._error(each["id"], _INVALID, "not passed on: make tool calls one by one, not in a batch")

    def _message(self, line: bytes, message: Json) -> None:
        method, id = message.get("method"), message.get("id")
        if method is None:
            answered = self._ours.pop(key_of(id), None)
            if answered is not None:
                answered(message)
            else:
                self._notice(message)
                self._to_server(line)
            return
        if not self._is_new(message):
            return
        if method == "tools/call":
            self._call(line, message)
            return
        if method == "notifications/cancelled" and self._is_canceled(message):
            return
        self._notice(message)
        self._to_server(line)

    def _is_new(self, message: Json) -> bool:
        """Whether the answer to this request can't be taken for that to another; if not, that is answered here."""
        id, method = message.get("id"), message.get("method")
        if self._is_off or method is None or id is None:
            return True
        key = key_of(id)
        if not is_id(id):
            self._error(None, _INVALID, "not passed on: an id is a text or a whole number")
            return False
        if any(key in known for known in (self._running, self._late, self._waiting, self._open)):
            self._error(id, _INVALID, "not passed on: a request with the same id is under way")
            return False
        if method != "tools/call":
            self._open.add(key)
        return True

    def _notice(self, message: Json) -> None:
        """Learn what a message of the client's tells about it."""
        method, params = message.get("method"), message.get("params")
        if method is None and key_of(message.get("id")) in self._roots_asked:
            self._roots_asked.discard(key_of(message.get("id")))
            self._learn_roots(message.get("result"))
        given = params.get("inputResponses") if isinstance(params, dict) else None
        for each in given.values() if isinstance(given, dict) else ():
            self._learn_roots(each)
        if method in ("initialize", "tools/list") and "id" in message:
            self._asked[key_of(message["id"])] = method
        if method == "initialize" and isinstance(params, dict):
            capabilities, info = params.get("capabilities"), params.get("clientInfo")
            self._can_ask = _has_forms(capabilities)
            self._is_from(info)
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and f"{META}protocolVersion" in meta:
            self.is_modern = True
            self._can_ask = _has_forms(meta.get(f"{META}clientCapabilities"))
            self._is_from(meta.get(f"{META}clientInfo"))

    def _learn_roots(self, result: object) -> None:
        from urllib.parse import unquote, urlsplit

        found = result.get("roots") if isinstance(result, dict) else None
        for each in found if isinstance(found, list) else ():
            uri = each.get("uri") if isinstance(each, dict) else None
            if isinstance(uri, str):
                path = unquote(urlsplit(uri).path) if uri.startswith("file:") else os.path.expanduser(uri)
                self._calls.roots = tuple(dict.fromkeys((*self._calls.roots, path)))

    def _is_from(self, info: object) -> None:
        if isinstance(info, dict) and isinstance(info.get("name"), str) and info["name"]:
            self._calls.client = info["name"]

    def _is_canceled(self, message: Json) -> bool:
        """Whether the call that is called off was never sent on: then the server need not hear of it."""
        params = message.get("params")
        key = key_of(params.get("requestId")) if isinstance(params, dict) else ""
        if key in self._waiting:
            self._waiting.discard(key)
            return True
        begun = self._running.pop(key, None)
        if begun is not None:
            # what the server writes before it hears of this, or without heeding it, is not a person's work
            self._late[key] = (begun, self._clock() + LATE_S)
            self._write(begun, lambda: self._calls.doubt(begun, _CALLED_OFF))
        return False

    # -- a call

    def _call(self, line: bytes, message: Json) -> None:
        self._notice(message)
        if self._is_off:
            self._to_server(line)
            return
        id, params = message.get("id"), message.get("params")
        if "id" not in message or id is None:
            return  # nobody could be told what became of it
        name = params.get("name") if isinstance(params, dict) else None
        arguments = params.get("arguments", {}) if isinstance(params, dict) else None
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            self._error(id, _PARAMS, "a tool call needs a name, and arguments that are an object")
            return
        key = key_of(id)
        if self._answered_again(id, message):
            return
        assert isinstance(params, dict)
        is_again = "inputResponses" in params or "requestState" in params
        asked = self._resumable.get(_round(name, arguments or {}, params.get("requestState"))) if is_again else None
        if asked:
            self._waiting.add(key)
            self._resume(line, id, asked.pop(0))
            return
        self._count += 1
        call = Call(f"{self._name}-{self._count}", name, arguments or {})
        self._waiting.add(key)
        if (name not in self.tools or self._is_stale) and not self._is_listed:
            self._list_first(message, lambda: self._judge(line, id, call))
        else:
            self._judge(line, id, call)

    def _judge(self, line: bytes, id: object, call: Call) -> None:
        if key_of(id) not in self._waiting:
            return  # called off
        try:
            look = self._calls.look(call, self.tools)
            if look.verb == PASS:
                self._waiting.discard(key_of(id))
                self._open.add(key_of(id))
                self._to_server(line)
            elif look.verb == WAIT:
                self._wait(line, id, call, look)
            else:
                self._go(line, id, call, is_approved=look.verdict.decision != "run")
        except _TROUBLE as e:
            self._refuse(id, e)

    def _wait(self, line: bytes, id: object, call: Call, look: Look) -> None:
        """For a person's yes. Raises Refused where the client can't ask for it."""
        if not self._can_ask:
            raise self._calls.refusal(call, look)
        self._ask(line, id, call, look)

    def _ask(self, line: bytes, id: object, call: Call, look: Look) -> None:
        """Have the client ask its person; the answer is theirs, not the model's."""
        allow = {"type": "boolean", "title": "Run it this once", "default": False}
        text = f"Reprieve: {self._calls.words(call)}? {look.verdict.reason}"
        form = {
            "message": _escaped(text),
            "requestedSchema": {"type": "object", "properties": {"allow": allow}, "required": ["allow"]},
        }
        if self.is_modern:
            # that era has no requests of a server's: the client asks, and makes the call once more with the answer
            token = f"reprieve-{os.urandom(16).hex()}"
            self._forms[token] = (call, look)
            self._waiting.discard(key_of(id))
            result = {
                "resultType": "input_required",
                "inputRequests": {_FORM: {"method": "elicitation/create", "params": {"mode": "form", **form}}},
                "requestState": token,
            }
            self._to_client(_line({"jsonrpc": "2.0", "id": id, "result": result}))
            return
        own = self._own(
            "elicitation/create", form, lambda reply: self._answered(line, id, call, look, reply.get("result"))
        )
        self._to_client(own)

    def _answered(self, line: bytes, id: object, call: Call, look: Look, given: object) -> None:
        """What the person said."""
        if key_of(id) not in self._waiting:
            return  # called off
        said = given if isinstance(given, dict) else {}
        content = said.get("content")
        try:
            allow = content.get("allow") if said.get("action") == "accept" and isinstance(content, dict) else None
            if said.get("action") == "decline" or allow is False:
                raise self._calls.deny(call, look)
            if allow is not True:  # closed without a word: the question stays
                raise self._calls.refusal(call, look)
            self._calls.approve(look)
            self._go(line, id, call, is_approved=True)
        except _TROUBLE as e:
            self._refuse(id, e)

    def _answered_again(self, id: object, message: Json) -> bool:
        """Whether it is the same call once more, with the answer to our form; the server need not see that."""
        params = message["params"]
        form = self._forms.pop(str(params.get("requestState")), None)
        if form is None:
            return False
        call, look = form
        given = params.get("inputResponses")
        self._waiting.add(key_of(id))
        if _what(params["name"], params.get("arguments") or {}) != _what(call.tool, call.arguments):
            self._refuse(id, Refused("the answer to a form is for another call than this one"))
            return True
        kept = {name: value for name, value in params.items() if name not in ("requestState", "inputResponses")}
        line = _line({**message, "params": kept})
        self._answered(line, id, call, look, given.get(_FORM) if isinstance(given, dict) else None)
        return True

    def _go(self, line: bytes, id: object, call: Call, *, is_approved: bool) -> None:
        begun = self._calls.begin(call, self.tools, is_approved=is_approved)
        if isinstance(begun, Look):
            self._wait(line, id, call, begun)
            return
        self._waiting.discard(key_of(id))
        self._running[key_of(id)] = begun
        self._to_server(line)

    def _resume(self, line: bytes, id: object, begun: Begun) -> None:
        """Send on the next round of a call that its server asked back for."""
        try:
            self._running[key_of(id)] = self._calls.resume(begun, self.tools)
        except _TROUBLE as e:
            self._refuse(id, e)
            return
        self._waiting.discard(key_of(id))
        self._to_server(line)

    def _refuse(self, id: object, error: Exception) -> None:
        """Answer in the server's place."""
        self._waiting.discard(key_of(id))
        if isinstance(error, Refused):
            code, text, hints, data = error.code, error.message, list(error.hints), error.data
        else:
            said = error.message if isinstance(error, ReprieveError) else str(error)
            code = error.code if isinstance(error, ReprieveError) else "store_failed"
            text, data = f"the call was not made, because it could not be protected: {said}", {}
            hints = [ASK_USER]
        words = "\n".join([f"Reprieve: {text}", *(f"Hint: {hint}" for hint in hints)])
        problem = {"code": code, "message": text, "hints": hints, **data}
        result = {
            "content": [{"type": "text", "text": words}],
            "structuredContent": {"ok": False, "error": problem},
            "isError": True,
            **({"resultType": "complete"} if self.is_modern else {}),
        }
        self._to_client(_line({"jsonrpc": "2.0", "id": id, "result": result}))

    def _list_first(self, message: Json, then: Callable[[], None]) -> None:
        """A client may call what it never listed here: ask the server for its own words about it."""
        self._listing.append(then)
        if len(self._listing) > 1:
            return
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        kept = {name: value for name, value in (meta or {}).items() if name.startswith(META)}

        def page(cursor: str, number: int) -> None:
            params = {**({"cursor": cursor} if cursor else {}), **({"_meta": kept} if kept else {})}
            self._to_server(self._own("tools/list", params, lambda reply: learn(reply, number)))

        def learn(reply: Json, number: int) -> None:
            if number == 1 and self._is_stale:
                self.tools.clear()
                self._is_stale = False
            more = self._learn(reply)
            if more and number < _PAGES:
                page(more, number + 1)
                return
            self._is_listed = True
            waiting, self._listing = self._listing, []
            for each in waiting:
                each()

        page("", 1)

    # -- from the server

    def from_server(self, line: bytes, *, is_refused: bool = False) -> None:
        """One line with its end. `is_refused`: what it came with says that no tool was run."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None  # what a server prints besides is the client's to judge
        if isinstance(message, dict) and "method" not in message:
            ours = self._ours.pop(key_of(message.get("id")), None)
            if ours is not None:
                ours(message)
                return
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, dict):
                self._from_server(each, is_refused)
        self._to_client(line)

    def _from_server(self, message: Json, is_refused: bool) -> None:
        if message.get("method") == "notifications/tools/list_changed":
            self._is_listed, self._is_stale = False, True
        if message.get("method") == "roots/list" and "id" in message:
            self._roots_asked.add(key_of(message["id"]))
        if "method" in message or "id" not in message:
            return
        key = key_of(message["id"])
        self._open.discard(key)
        if self._asked.pop(key, "") == "tools/list":
            self._learn(message)
        begun = self._running.pop(key, None)
        if key in self._late:
            late, _ = self._late.pop(key)
            answer = answer_of(message, is_refused=is_refused)
            self._finish(late, None if answer.unfinished else answer, _CALLED_OFF)
        if begun is None:
            return
        answer = answer_of(message, is_refused=is_refused)
        self._finish(begun, None if answer.unfinished else answer, answer.unfinished)
        if answer.is_asking and answer.result is not None:
            # the step is sealed: the client may never come again, and what a person does meanwhile is theirs
            what = _round(begun.call.tool, begun.call.arguments, answer.result.get("requestState"))
            self._resumable.setdefault(what, []).append(begun)

    def _learn(self, message: Json) -> str:
        """Remember the tools of a list; gives the cursor of what follows."""
        result = message.get("result")
        found = result.get("tools") if isinstance(result, dict) else None
        for tool in found if isinstance(found, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self.tools[tool["name"]] = tool
        more = result.get("nextCursor") if isinstance(result, dict) else None
        return more if isinstance(more, str) else ""

    # -- ends

    def begin_no_more(self) -> None:
        """The server is gone, though its last words may be read still: a call that waits here will never leave."""
        self._listing, self._waiting = [], set()

    def end(self, why: str) -> None:
        """Neither side will say more."""
        for begun in self._running.values():
            self._finish(begun, None, why)
        self._running = {}
        self._seal_late(self._late)

    def next_s(self) -> float | None:
        """Seconds until `give_up` has something to do; None if it has not."""
        return max(0.0, min(until for _, until in self._late.values()) - self._clock()) if self._late else None

    def give_up(self) -> None:
        """Seal the steps of calls that were called off and never answered: what changes later is somebody else's."""
        now = self._clock()
        self._seal_late([key for key, (_, until) in self._late.items() if until <= now])

    def _seal_late(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            begun, _ = self._late.pop(key)
            self._open.add(key)  # its answer may come all the same, and is not that of a later call
            self._finish(begun, None, _CALLED_OFF)

    def unsent(self, id: object, why: str, *, is_sent: bool) -> None:
        """The message with this id got no answer, and never will; `is_sent`: it may have arrived."""
        begun = self._running.pop(key_of(id), None)
        if not is_sent and key_of(id) in self._late:
            begun, _ = self._late.pop(key_of(id))  # called off, and it never left: nobody is at it
        self._open.discard(key_of(id))
        ours = self._ours.pop(key_of(id), None)
        if ours is not None:
            ours({"error": {"message": why}})
            return
        if begun is not None:
            self._finish(begun, None if is_sent else Answer(None, why, is_refused=True), why)
        self._error(id, -32000, why)

    def _finish(self, begun: Begun, answer: Answer | None, detail: str = "") -> None:
        self._write(
            begun,
            lambda: self._calls.finish(begun, self.tools, answer=answer, is_modern=self.is_modern, detail=detail),
        )

    def _write(self, begun: Begun, write: Callable[[], None]) -> None:
        try:
            write()
        except (*_TROUBLE, TypeError, LookupError, AttributeError) as e:  # a stranger's words, of whatever shape
            # it did happen: the answer is the client's all the same, and the journal says that it is not known
            said = e.message if isinstance(e, ReprieveError) else f"{type(e).__name__} {e}".strip()
            self._reporter.warn(
                f"what became of {begun.call.tool} (effect {begun.effect}) could not be written: {said}"
            )

    def _own(self, method: str, params: Json, answered: Callable[[Json], None]) -> bytes:
        id = f"reprieve-{os.urandom(8).hex()}"
        self._ours[key_of(id)] = answered
        return _line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    def _error(self, id: object, code: int, text: str) -> None:
        self._to_client(_line({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": f"Reprieve: {text}"}}))


def _has_forms(capabilities: object) -> bool:
    elicits = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    # an empty object means forms, as before there were other kinds
    return isinstance(elicits, dict) and (not elicits or "form" in elicits)


def _what(tool: str, arguments: Mapping[str, object]) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


def _round(tool: str, arguments: Mapping[str, object], state: object) -> str:
    """What tells the next round of a call: the client gives back the state that it was given."""
    return json.dumps([_what(tool, arguments), state], sort_keys=True)


def _line(message: Json) -> bytes:
    return json.dumps(message).encode() + b"\n"
