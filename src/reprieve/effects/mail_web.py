"""Keep held messages as drafts in Gmail or Microsoft 365, and have the provider send them.

What is sent is always what was staged: a draft that was edited meanwhile is replaced by it. A draft that is gone may
have been sent by hand, so then nothing is sent and nobody claims that it never left.
"""

from __future__ import annotations

import socket
from base64 import b64encode, urlsafe_b64encode
from json import dumps, loads
from urllib.parse import quote, urlsplit

from reprieve.effects import mime, wire
from reprieve.effects.credentials import resolve
from reprieve.effects.mail import HOLD_FIELD, SENT, UNSENT, UNSURE, Delivery
from reprieve.effects.mail_smtp import is_loopback
from reprieve.effects.wire import Answer
from reprieve.errors import Misconfigured, Refused, ReprieveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.effects.mime import Letter
    from reprieve.model.effect import Json

_GONE = "its draft is gone from the mailbox: it was sent or deleted there"
_TIMEOUT_S = 60.0


class _Web:
    """One provider's address and token."""

    what = ""

    def __init__(self, base: str, token: str) -> None:
        self._base, self._token = base.rstrip("/"), token

    def prepare(self) -> None:
        parts = urlsplit(self._base)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise Misconfigured(f"'{self._base}' is no address to send a token to", hints=["it begins with https://"])
        if not self._token:
            raise Misconfigured(
                f"no token for {self.what} is set", hints=[f"reprieve config set mail.{self.what}_token env:VARIABLE"]
            )
        resolve(self._token)

    def must_fit(self, letter: Letter) -> None:
        """The provider sends to everybody who is named in the message: they must be its recipients."""
        others = [address for address in mime.receivers_of(letter.data) if address not in letter.rcpt]
        if others:
            raise Refused(f"{self.what} would also send it to {', '.join(others)}, who are named in it; it is not held")

    def is_there(self, id: str, letter: Letter, draft: Json | None) -> bool | None:
        """As in `Backend`."""
        try:
            return bool(self._find(id, letter, draft))
        except _Unclear:
            return None

    def _find(self, id: str, letter: Letter, draft: Json | None) -> str:
        raise NotImplementedError

    def _ask(self, method: str, path: str, *, body: object = None, raw: bytes | None = None) -> Answer:
        try:
            self.prepare()
            headers = {"Authorization": f"Bearer {resolve(self._token)}", "Accept": "application/json"}
        except ReprieveError as e:
            return Answer(0, detail=e.message, is_unsent=True)
        data = raw
        if raw is not None:
            headers["Content-Type"] = "text/plain"
        elif body is not None:
            headers["Content-Type"] = "application/json"
            data = dumps(body).encode()
        elif method == "POST":
            data = b""
        url = self._base + path
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        except OSError as e:
            return Answer(0, detail=f"'{parts.hostname}' has no address ({e.strerror or e})", is_unsent=True)
        return wire.send(method, url, address=str(found[0][4][0]), headers=headers, body=data, timeout_s=_TIMEOUT_S)

    def _judge(self, answer: Answer, letter: Letter) -> Delivery:
        """What the answer to a request to send means. Every 2xx is sent, whatever is in it."""
        if 200 <= answer.status < 300:
            return Delivery(SENT, f"sent: {self.what} took it: {answer.status}", letter.rcpt)
        if answer.is_unsent or (400 <= answer.status < 500 and answer.status != 408):
            return Delivery(UNSENT, f"not sent: {self.what}: {_said(answer)}")
        return Delivery(UNSURE, f"{self.what} did not say whether it sent it: {_said(answer)}")


class GmailDrafts(_Web):
    """Drafts in Gmail (drafts.create, drafts.send, drafts.delete)."""

    what = "gmail"

    def stage(self, id: str, letter: Letter) -> tuple[Json | None, str]:
        try:
            found = self._find(id, letter, None)
        except _Unclear as e:
            return None, f"no draft was made in the mailbox: {e}"
        if not found:
            answer = self._ask("POST", "/users/me/drafts", body={"message": {"raw": _raw(letter, id)}})
            found = str(_object(answer).get("id") or "")
            if not found:
                return None, f"no draft was made in the mailbox: {_said(answer)}"
        return {"draft": found}, ""

    def send(self, id: str, letter: Letter, draft: Json | None) -> Delivery:
        try:
            found = self._find(id, letter, draft)
        except _Unclear as e:
            return Delivery(UNSENT, f"not sent: gmail: {e}")
        if not found:
            if draft:
                return Delivery(UNSURE, _GONE)
            return self._judge(self._ask("POST", "/users/me/messages/send", body={"raw": _raw(letter)}), letter)
        body = {"id": found, "message": {"raw": _raw(letter)}}
        return self._judge(self._ask("POST", "/users/me/drafts/send", body=body), letter)

    def drop(self, id: str, letter: Letter, draft: Json | None) -> str:
        try:
            found = self._find(id, letter, draft)
        except _Unclear as e:
            return str(e)
        answer = self._ask("DELETE", f"/users/me/drafts/{quote(found, safe='')}") if found else Answer(204)
        return "" if answer.status in (200, 204, 404, 410) else _said(answer)

    def _find(self, id: str, letter: Letter, draft: Json | None) -> str:
        if draft:
            name = str(draft.get("draft"))
            answer = self._ask("GET", f"/users/me/drafts/{quote(name, safe='')}?format=minimal")
            return name if _is_found(answer) else ""
        search = quote(f"rfc822msgid:{letter.message_id.strip('<>')}", safe="")
        return _first_id(self._ask("GET", f"/users/me/drafts?q={search}"), "drafts")


class GraphDrafts(_Web):
    """Drafts in Microsoft 365 (POST /messages, /send, DELETE)."""

    what = "graph"

    def stage(self, id: str, letter: Letter) -> tuple[Json | None, str]:
        try:
            found = self._find(id, letter, None) or self._create(letter, id)
        except _Unclear as e:
            return None, f"no draft was made in the mailbox: {e}"
        return {"draft": found}, ""

    def send(self, id: str, letter: Letter, draft: Json | None) -> Delivery:
        try:
            found = self._find(id, letter, draft)
            if draft and not found:
                return Delivery(UNSURE, _GONE)
            if found:
                # the provider can't replace the content of a draft; a new one is exactly what was staged
                problem = self._delete(found)
                if problem:
                    return Delivery(UNSENT, f"not sent: its draft could not be replaced: {problem}")
            new = self._create(letter, "")
        except _Unclear as e:
            return Delivery(UNSENT, f"not sent: graph: {e}")
        return self._judge(self._ask("POST", f"/me/messages/{quote(new, safe='')}/send"), letter)

    def drop(self, id: str, letter: Letter, draft: Json | None) -> str:
        try:
            found = self._find(id, letter, draft)
        except _Unclear as e:
            return str(e)
        return self._delete(found) if found else ""

    def _delete(self, name: str) -> str:
        answer = self._ask("DELETE", f"/me/messages/{quote(name, safe='')}")
        return "" if answer.status in (200, 204, 404, 410) else _said(answer)

    def _create(self, letter: Letter, hold: str) -> str:
        answer = self._ask("POST", "/me/messages", raw=b64encode(_copy(letter, hold)))
        name = str(_object(answer).get("id") or "")
        if not name:
            raise _Unclear(_said(answer))
        return name

    def _find(self, id: str, letter: Letter, draft: Json | None) -> str:
        if draft:
            name = str(draft.get("draft"))
            answer = self._ask("GET", f"/me/messages/{quote(name, safe='')}?$select=id,isDraft")
            return name if _is_found(answer) and _object(answer).get("isDraft") is not False else ""
        wanted = quote(f"internetMessageId eq '{letter.message_id}' and isDraft eq true", safe="")
        return _first_id(self._ask("GET", f"/me/messages?$select=id&$filter={wanted}"), "value")


class _Unclear(Exception):
    """The provider did not say."""


def _is_found(answer: Answer) -> bool:
    if 200 <= answer.status < 300:
        return True
    if answer.status in (404, 410):
        return False
    raise _Unclear(_said(answer))


def _first_id(answer: Answer, listed_as: str) -> str:
    """Of the first thing in a list, "" if there is none."""
    things = _object(answer).get(listed_as) if _is_found(answer) else None
    first = things[0] if isinstance(things, list) and things else {}
    return str(first.get("id") or "") if isinstance(first, dict) else ""


def _copy(letter: Letter, hold: str = "") -> bytes:
    """With those in Bcc as a field: that is where the providers read the recipients; they take it out themselves."""
    named = mime.receivers_of(letter.data)
    hidden = ", ".join(address for address in letter.rcpt if address not in named)
    fields = [(HOLD_FIELD, hold)] if hold else []
    return mime.with_fields(letter.data, [*fields, *([("Bcc", hidden)] if hidden else [])])


def _raw(letter: Letter, hold: str = "") -> str:
    return urlsafe_b64encode(_copy(letter, hold)).decode()


def _object(answer: Answer) -> dict[str, object]:
    try:
        found = loads(answer.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and 200 <= answer.status < 300 else {}


def _said(answer: Answer) -> str:
    """Never what the provider wrote at length: it may repeat what was sent."""
    return answer.detail or f"it answered {answer.status}"
