"""Record the HTTP calls of this process: what each one may do, what it did, and how it is taken back.

    look before ─▶ outlook ─▶ policy ─▶ intent (durable) ─▶ send ─▶ outcome (durable) ─▶ look after ─▶ after-image

Sends nothing itself. `exchange` is a conversation with whoever has the client: it says what to ask or send, and is told
what came back; so one course of events serves every client, with and without asyncio.
"""

from __future__ import annotations

import os

from reprieve.app import journals
from reprieve.app.kept import with_references
from reprieve.effects import calls, credentials, images, rest
from reprieve.effects.calls import Call, Question
from reprieve.effects.inverses import http_inverse
from reprieve.effects.journal import Charge
from reprieve.effects.wire import Answer
from reprieve.errors import Refused, Repeated, ReprieveError
from reprieve.files.processes import born
from reprieve.model.effect import DONE, IRREVERSIBLE, UNDONE, WANTED, EffectDraft
from reprieve.model.value import Value
from reprieve.policy.decide import ASK, RUN, Circumstances, decide
from reprieve.policy.redact import MASK, is_sensitive, redact, redact_url, shorten
from reprieve.store.hashing import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from reprieve.app.workspace import Workspace
    from reprieve.effects.journal import Journal, Place
    from reprieve.effects.rest import Outlook, Rule, Rules
    from reprieve.model.effect import Effect, Json

    Exchange = Generator[Question | "Send", Answer, Answer | None]

_IMAGE = 64 * 1024  # characters of an image that are kept for people, besides what the inverse needs
# headers that an API may need again, by a part of their name; none of them is a right
_URL_HOLDS = "its URL holds what seems to be a secret, which the journal does not keep"
_NEEDED = ("version", "organization", "project", "tenant", "account", "region")


class Send(Value):
    """Send the request itself now, with these headers besides its own."""

    headers: tuple[tuple[str, str], ...] = ()


class _Frame(Value):
    """What an inverse needs besides its own words: where it goes and by what right; `why`: it can't be sent again."""

    origin: str
    headers: dict[str, str]
    fingerprints: dict[str, str]
    why: str = ""
    address: str = ""  # where the host is, if that is inside this network

    def around(self, undo: Json) -> Json:
        method = str(undo["method"])
        return {
            "kind": "http",
            **undo,
            "origin": self.origin,
            "headers": self.headers,
            **({"fingerprints": self.fingerprints} if self.fingerprints else {}),
            **({"address": self.address} if self.address else {}),
            "is_idempotent": bool(undo.get("is_idempotent", method in ("PUT", "DELETE", "PATCH"))),
            "is_gone_done": bool(undo.get("is_gone_done")),  # not before it was seen there
            "is_verified": bool(undo.get("is_verified", True)),
        }


class HttpCalls:
    """The recorder of one process for one workspace."""

    def __init__(
        self,
        open_workspace: Callable[[], Workspace],
        *,
        rules: Rules | None = None,
        on_repeat: str = "raise",
    ) -> None:
        """`open_workspace` is called once per process, again after a fork. `on_repeat`: raise, or replay."""
        self._opener, self._rules, self._on_repeat = open_workspace, rules, on_repeat
        self._pid, self._opened = 0, None

    _opened: tuple[Workspace, Journal] | None

    def is_look(self, call: Call) -> bool:
        """Whether it changes nothing, and is none of our business."""
        rule = self._rules(call) if self._rules is not None else None
        if rule is not None:
            return rule.is_pass or rule.cls == "read"
        return calls.is_look(call)

    def open(self) -> tuple[Workspace, Journal]:
        """The workspace and its journal, for this process."""
        if self._opened is None or self._pid != os.getpid():
            ws = self._opener()
            self._pid, self._opened = os.getpid(), (ws, journals.open_journal(ws))
        return self._opened

    def exchange(self, call: Call) -> Exchange:
        """One call. Yields what to ask or send, is sent the answers; returns an answer only if nothing was sent.

        Raises Refused (policy, budget, approval missing), Repeated, or what the journal says if it can't be written:
        whatever is raised before `Send` was yielded, the request was not sent.
        """
        ws, journal = self.open()
        rule = self._rules(call) if self._rules is not None else None
        before: Answer | None = None
        url = rest.first_look(call, rule)
        if url:
            before = yield Question(url)
        frame = self._frame(call, journal)
        seen = rest.outlook(call, before, rule, hidden)
        if frame.why:
            seen = seen.replace(
                inverse=None, verify=None
            )  # either of them would keep the URL, or send it without right
            if seen.cls not in (IRREVERSIBLE, "opaque"):
                seen = seen.replace(cls=IRREVERSIBLE, why=frame.why)
        place = self._place(ws)
        charges = self._charges(ws, call, rule)
        own = {name for name, _ in rule.charges} if rule is not None else set()
        self._gate(ws, journal, call, seen, bool(own) and own <= {charge.name for charge in charges})
        draft = self._draft(call, seen, before, rule, frame, journal)
        try:
            effect = journal.begin(draft, place, charges=charges)
        except Repeated as e:
            if self._on_repeat != "replay":
                raise
            return _replayed(journal.get(e.effect), e)
        answer = yield Send((("Idempotency-Key", effect.idem),) if rule is not None and rule.is_keyed else ())
        state, detail = rest.outcome(answer, rule, call)
        if state != DONE:
            later = rest.later(call, answer)
            if later and redact_url(str(later["url"])) != later["url"]:
                later = None
            request = {**(effect.request or {}), "verify": later} if later else None
            self._finish(ws, journal, effect.id, state, detail=detail, request=request)
            return None
        verdict = self._verdict(call, before, answer, seen, rule, journal, frame)
        done = self._finish(
            ws,
            journal,
            effect.id,
            DONE,
            detail=f"{detail}; {verdict.why}" if verdict.why else detail,
            reply=_reply(answer, is_kept=rule is None or not rule.has_secrets),
            cls=verdict.cls,
            inverse=verdict.inverse,
            resource=redact_url(verdict.resource),
            expires_at=ws.clock() + rule.window_ns if rule is not None and rule.window_ns else None,
        )
        if done is not None and verdict.inverse is not None and verdict.look:
            now = yield Question(verdict.look)
            sealed = rest.after_look(call, before, verdict, now, answer, hidden)
            done = self._seal(ws, journal, done, sealed, now)
        if done is not None and done.undo_state == WANTED:
            self._undo_late(ws, journal, done)
        return None

    # -- policy

    def _gate(self, ws: Workspace, journal: Journal, call: Call, seen: Outlook, is_capped: bool) -> None:
        decision = decide(seen.cls, mode=ws.config.policy_mode, circumstances=Circumstances(is_within_budget=is_capped))
        if decision.verb == RUN:
            return
        what = f"{call.method} {redact_url(call.url)}"
        reason = f": {seen.why}" if seen.why else ""
        if decision.verb != ASK:
            raise Refused(
                f"'{what}' is {seen.cls}{reason}; it was not sent",
                hints=["in autopilot nothing leaves that can't be taken back: ask the user to do it"],
                data={"class": seen.cls},
            )
        if call.body is None:
            raise Refused(
                f"'{what}' is {seen.cls}{reason}; its body is a stream, which nobody can approve; it was not sent"
            )
        from reprieve.app.effects import approvals_of

        hash = sha256("\0".join((call.method, call.url, seen.cls)).encode() + b"\0" + call.body).hex()
        approvals = approvals_of(journal, ws)
        if approvals.use(hash):
            return
        body = shorten(call.body.decode("utf-8", "replace")) if call.body else ""
        asked = approvals.ask(hash, f"send {what}" + (f" with {body}" if body else "") + reason, seen.cls)
        raise Refused(
            f"'{what}' is {seen.cls}{reason}; it was not sent and waits for a person's yes",
            hints=[f"a person approves it in a terminal of their own: reprieve approve {asked.id}; then send it again"],
            data={"approval": asked.id, "class": seen.cls},
        )

    def _charges(self, ws: Workspace, call: Call, rule: Rule | None) -> list[Charge]:
        from urllib.parse import urlsplit

        wanted: list[tuple[str, str, float]] = [("requests_per_host", urlsplit(call.url).hostname or "", 1.0)]
        if call.method == "DELETE":
            wanted.append(("deletions", "", 1.0))
        wanted += [(name, "", amount) for name, amount in (rule.charges if rule is not None else ())]
        found = []
        for name, of, amount in wanted:
            cap = getattr(ws.config, f"budget_{name}", 0)
            if cap:
                found.append(Charge(f"{name} {of}".strip(), amount, float(cap)))
        return found

    # -- the journal

    def _draft(
        self, call: Call, seen: Outlook, before: Answer | None, rule: Rule | None, frame: _Frame, journal: Journal
    ) -> EffectDraft:
        named = calls.graphql(call)
        request: Json = {
            "method": call.method,
            "url": redact_url(call.url),
            "origin": frame.origin,
            "headers": frame.headers,
            **({"fingerprints": frame.fingerprints} if frame.fingerprints else {}),
            **({"address": frame.address} if frame.address else {}),
            **({"verify": seen.verify} if seen.verify else {}),
        }
        return EffectDraft(
            "http",
            seen.cls,
            redact_url(seen.resource),
            f"{call.method} {redact_url(call.url)}" + (f" ({', '.join(named[1])})" if named and named[1] else ""),
            tuple(redact_url(each) for each in seen.depends),
            frame.around(seen.inverse) if seen.inverse is not None else None,
            request,
            _image(before),
            rule.id if rule is not None else "",
            calls.fingerprint(call, journal.log.fingerprint),
        )

    def _verdict(
        self,
        call: Call,
        before: Answer | None,
        answer: Answer,
        seen: Outlook,
        rule: Rule | None,
        journal: Journal,
        frame: _Frame,
    ) -> rest.Verdict:
        if rule is None:
            verdict = rest.verdict(call, before, answer, seen, hidden)
            if verdict.inverse is not None and frame.why:
                return verdict.replace(cls=IRREVERSIBLE, inverse=None, why=frame.why)
            if verdict.inverse is None:
                return verdict
            if redact_url(str(verdict.inverse["url"])) != verdict.inverse["url"]:  # of a Location
                return verdict.replace(cls=IRREVERSIBLE, inverse=None, look="", why=_URL_HOLDS)
            return verdict.replace(inverse=frame.around(verdict.inverse))
        if (rule.inverse is None and rule.undo is None) or frame.why:
            return rest.Verdict(rule.cls, None, seen.resource, seen.why or frame.why)
        try:
            if rule.undo is not None:
                undo = rule.undo(calls.json_of(answer), calls.json_of(before))
                lossy = images.lossy({name: undo[name] for name in ("json", "form") if name in undo}, hidden)
                if redact_url(str(undo["url"])) != undo["url"]:
                    lossy = _URL_HOLDS
                if lossy:
                    return rest.Verdict(IRREVERSIBLE, None, seen.resource, lossy)
                return rest.Verdict(rule.cls, frame.around(undo), seen.resource)
            assert rule.inverse is not None
            inverse = http_inverse(
                rule.inverse, forward=call.url, response=calls.json_of(answer), sign=journal.log.fingerprint
            )
            inverse = with_references(inverse, journal.log.fingerprint)
        except ReprieveError as e:
            return rest.Verdict(IRREVERSIBLE, None, seen.resource, f"rule {rule.id}: {e.message}")
        inverse["headers"] = {**frame.headers, **_texts(inverse.get("headers"))}
        if frame.fingerprints:
            inverse["fingerprints"] = {**_texts(inverse.get("fingerprints")), **frame.fingerprints}
        return rest.Verdict(rule.cls, inverse, seen.resource)

    def _finish(self, ws: Workspace, journal: Journal, id: str, state: str, **facts: object) -> Effect | None:
        """Write the outcome; None if that failed. The answer is the caller's all the same: it did happen."""
        try:
            return journal.finish(id, state, **facts)  # type: ignore[arg-type]
        except ReprieveError as e:
            ws.reporter.warn(f"the outcome of effect {id} could not be written ({e.message}); it counts as unknown")
            return None

    def _seal(self, ws: Workspace, journal: Journal, done: Effect, verdict: rest.Verdict, now: Answer) -> Effect | None:
        detail = f"{done.detail}; {verdict.why}" if verdict.inverse is None else done.detail
        try:
            return journal.finish(
                done.id, DONE, detail=detail, after=_image(now), cls=verdict.cls, inverse=verdict.inverse
            )
        except Refused:
            return journal.get(done.id)  # a rollback was faster, and took what was known before
        except ReprieveError as e:
            ws.reporter.warn(f"the after-image of effect {done.id} could not be written ({e.message})")
            return None

    def _undo_late(self, ws: Workspace, journal: Journal, effect: Effect) -> None:
        """A rollback came by while it was under way: what it wanted is done now. Raises Refused with how that went."""
        from reprieve.rollback.effects import plan_effects, undo_effects

        drivers = journals.drivers(journal, ws.memory)
        steps = list(plan_effects(journal, [effect], drivers, now_ns=ws.clock()))
        for result in undo_effects(journal, steps, drivers, now_ns=ws.clock()):
            how = "it was undone" if result.state == UNDONE else f"it could not be undone ({result.detail})"
            raise Refused(f"'{effect.description}' was still under way when a rollback came by; {how}")

    def _frame(self, call: Call, journal: Journal) -> _Frame:
        from urllib.parse import urlsplit

        headers = dict(call.headers)
        host = urlsplit(call.url).hostname or ""
        references = credentials.referenced(headers, host, os.environ)
        kept = {
            name: value
            for name, value in headers.items()
            if name not in references and _is_needed(name) and redact(value) == value
        }
        why = ""
        if credentials.is_signed(headers):
            why, references = "the request is signed; nobody but its signer can send one like it", {}
        elif redact_url(call.url) != call.url:
            why = _URL_HOLDS
        prints = credentials.fingerprints_of(references, headers, journal.log.fingerprint)
        return _Frame(call.origin, {**kept, **references}, prints, why, _inner_address(host))

    def _place(self, ws: Workspace) -> Place:
        place = journals.place(ws)
        # budgets are per run; without one, per process. With its birth: process numbers come round again
        pid = int(place.run) if place.run.isdecimal() else 0 if place.run else os.getpid()
        return place.replace(run=f"{pid}.{born(pid)}") if pid else place


def hidden(value: object) -> object:
    """The same value with secrets replaced by a mask, whole otherwise."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {
            key: MASK if is_sensitive(str(key)) and inner not in (None, "", True, False) else hidden(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [hidden(inner) for inner in value]
    return value


def _inner_address(host: str) -> str:
    """The address of a name that leads inside this network, "" for all others: an undo goes inside only there."""
    import socket

    from reprieve.policy.egress import is_public

    if host == "localhost" or host.replace(".", "").isdecimal() or ":" in host:
        return ""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""  # through a proxy, or nowhere: the call itself will tell
    address = str(found[0][4][0])
    return "" if is_public(address) else address


def _is_needed(header: str) -> bool:
    name = header.lower()
    return name == "accept" or any(part in name for part in _NEEDED)


def _image(answer: Answer | None) -> Json | None:
    if answer is None or answer.status == 0:
        return None
    image: Json = {"status": answer.status}
    if answer.header("ETag"):
        image["etag"] = answer.header("ETag")
    found = calls.json_of(answer)
    if found is not None and len(answer.body) <= _IMAGE:
        image["json"] = hidden(found)
    return image


def _reply(answer: Answer, *, is_kept: bool) -> Json:
    """What is needed to give the same answer again: whole, or not at all."""
    reply: Json = {"status": answer.status, "type": answer.header("Content-Type")}
    if not is_kept:
        return reply
    try:
        text = answer.body.decode()
    except UnicodeDecodeError:
        return reply
    if (
        not answer.detail
        and len(text) <= _IMAGE
        and redact(text) == text
        and hidden(calls.json_of(answer)) == calls.json_of(answer)
    ):
        reply["text"] = text
    return reply


def _replayed(effect: Effect, repeated: Repeated) -> Answer:
    reply = effect.reply or {}
    if effect.state != DONE or "text" not in reply:
        raise repeated
    headers = (("Content-Type", str(reply.get("type") or "text/plain")), ("Reprieve-Replayed", effect.id))
    return Answer(int(str(reply["status"])), headers, str(reply["text"]).encode())


def _texts(value: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}
