"""Undo by an HTTP request that was frozen when the effect was recorded.

    inverse = {"kind": "http", "method": ..., "url": ..., "origin": of the forward call,
               "headers": {name: value or credential reference}, "fingerprints": {reference: keyed fingerprint},
               "json" | "form" | "text": ...,                      the body
               "is_gone_done": bool                                404 and 410 mean that it is as wished already
               "is_idempotent": bool                               may be sent again if nobody knows whether it arrived
               "check": {"url", "etag", "json", "absent"}          how the resource must look before it
               "make": {"url", "json"}}                            another way if the first is not possible: a new id

Every request carries the undo's own idempotency key.
"""

from __future__ import annotations

from reprieve.effects import wire
from reprieve.effects.credentials import is_reference, resolve
from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.errors import ReprieveError
from reprieve.model.effect import CONFLICT, DONE, FAILED, MANUAL, UNDONE, UNKNOWN
from reprieve.model.effect import REFUSED as NOT_DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.effects.wire import Answer, Egress
    from reprieve.model.effect import Effect

_TRIES = 4
_LONGEST_WAIT_S = 30.0
# fields that a server changes by itself: they say nothing about who changed the rest
VOLATILE = frozenset(
    ("updated", "updated_at", "updatedat", "modified", "modified_at", "lastmodified", "last_modified", "etag", "_etag",
     "version", "revision", "_links", "links", "accessed_at", "views")
)  # fmt: skip


class HttpDriver:
    """Sends the request."""

    def __init__(self, egress: Egress, *, sign: Callable[[bytes], str], sleep: Callable[[float], None]) -> None:
        self._egress, self._sign, self._sleep = egress, sign, sleep

    def says(self, effect: Effect) -> str:
        inverse = effect.inverse or {}
        parts = [f"{inverse.get('method')} {inverse.get('url')}"]
        for name in ("json", "form", "text"):
            if name in inverse:
                from reprieve.model.quickjson import dumps

                value = inverse[name]
                parts.append(f"with {name} {value if isinstance(value, str) else dumps(value)}")
        headers = _map(inverse.get("headers"))
        if headers:
            parts.append("and headers " + ", ".join(f"{key}: {value}" for key, value in headers.items()))
        return " ".join(parts)

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        inverse = effect.inverse or {}
        try:
            self._headers(inverse)
        except ReprieveError as e:
            return Check(UNCLEAR, e.message)
        wanted = _map(inverse.get("check"))
        if not wanted:
            return Check(READY)
        url = renamed(str(wanted["url"]), names)
        answer = self._send("GET", url, inverse, {}, None)
        if answer.status == 0 or answer.status >= 500 or answer.status in (401, 403, 429):
            return Check(UNCLEAR, f"GET {url}: {answer.detail or answer.status}")
        if answer.status in (404, 410):
            if wanted.get("absent"):
                return Check(READY)
            if inverse.get("is_gone_done"):
                return Check(ALREADY, "it is gone already")
            return Check(CHANGED, f"{url} is gone")
        if wanted.get("absent"):
            before = _map(inverse).get("json")
            if before is not None and same(before, _json(answer)):
                return Check(ALREADY, "it is there again already")
            return Check(CHANGED, f"{url} is there again, and not as it was")
        if "json" in wanted:
            now = _json(answer)
            if same(wanted["json"], now):
                return Check(READY)
            if "json" in inverse and same(inverse["json"], now):
                return Check(ALREADY, "it is as it was before already")
            return Check(CHANGED, f"{url} was changed since: {differences(wanted['json'], now)}")
        if wanted.get("etag") and answer.header("ETag") and answer.header("ETag") != wanted["etag"]:
            return Check(CHANGED, f"{url} was changed since (its ETag is another)")
        return Check(READY)

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        inverse = effect.inverse or {}
        method, url = str(inverse.get("method")), renamed(str(inverse.get("url")), names)
        extra = {"Idempotency-Key": effect.undo_idem}
        wanted = _map(inverse.get("check"))
        try:
            if wanted.get("absent"):
                extra["If-None-Match"] = "*"
            elif wanted and method != "POST":
                look = self._send("GET", renamed(str(wanted["url"]), names), inverse, {}, None)
                if look.header("ETag") and look.status == 200:
                    extra["If-Match"] = look.header("ETag")
            body = _body(inverse, extra, names)
            answer = self._patiently(method, url, inverse, extra, body)
            make = _map(inverse.get("make"))
            if make and answer.status in (404, 405, 501):
                return self._make(effect, make, names)
        except ReprieveError as e:
            return Outcome(FAILED, e.message)
        return self._judge(answer, inverse, f"{method} {url}")

    def resolve(self, effect: Effect) -> str:
        verify = _map((effect.request or {}).get("verify"))
        if not verify:
            return UNKNOWN
        answer = self._send("GET", str(verify["url"]), {**(effect.inverse or {}), **(effect.request or {})}, {}, None)
        if answer.status == 200:
            found = _json(answer)
            if "json" in verify and not _contains(found, verify["json"]):
                return NOT_DONE if verify.get("is_certain") else UNKNOWN
            return DONE
        return NOT_DONE if answer.status in (404, 410) else UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        inverse = effect.inverse or {}
        return bool(inverse.get("is_idempotent")) or str(inverse.get("method")).upper() in ("PUT", "DELETE")

    # -- inside

    def _make(self, effect: Effect, make: Mapping[str, object], names: Mapping[str, str]) -> Outcome:
        """What was deleted comes back under a new id."""
        inverse = effect.inverse or {}
        url, extra = renamed(str(make["url"]), names), {"Idempotency-Key": effect.undo_idem}
        body = _body({"json": make.get("json")}, extra, names)
        answer = self._patiently("POST", url, inverse, extra, body)
        judged = self._judge(answer, inverse, f"POST {url}")
        if judged.undo_state != UNDONE:
            return judged
        new = new_url(url, answer)
        old = str(inverse.get("url"))
        if new is None or wire.origin(new) != wire.origin(old):
            return judged.replace(detail="it was made anew, and its new name is not known")
        return judged.replace(detail=f"it was made anew as {new}", renamed=(old, new))

    def _patiently(
        self, method: str, url: str, inverse: Mapping[str, object], extra: Mapping[str, str], body: bytes | None
    ) -> Answer:
        """Try again where the server says later, with the same key."""
        for attempt in range(_TRIES):
            answer = self._send(method, url, inverse, extra, body)
            if answer.status not in (429, 503) and not answer.is_unsent:
                return answer
            if attempt < _TRIES - 1:
                self._sleep(_wait_s(answer, attempt))
        return answer

    def _send(
        self,
        method: str,
        url: str,
        inverse: Mapping[str, object],
        extra: Mapping[str, str],
        body: bytes | None,
    ) -> Answer:
        address = self._egress(str(inverse.get("origin") or ""), url)
        headers = {"User-Agent": "reprieve", "Accept": "*/*", **self._headers(inverse), **extra}
        return wire.send(method, url, address=address, headers=headers, body=body)

    def _headers(self, inverse: Mapping[str, object]) -> dict[str, str]:
        prints = _map(inverse.get("fingerprints"))
        found = {}
        for name, value in _map(inverse.get("headers")).items():
            text = str(value)
            if is_reference(text):
                secret = resolve(text)
                known = prints.get(text)
                if known and self._sign(secret.encode()) != known:
                    from reprieve.errors import Refused

                    raise Refused(
                        f"the credential '{text}' is not the one that the effect was made with; nothing was sent",
                        hints=["it may belong to another account; set the one that was used"],
                    )
                text = secret
            found[name] = text
        return found

    def _judge(self, answer: Answer, inverse: Mapping[str, object], what: str) -> Outcome:
        status = answer.status
        if 200 <= status < 300:
            return Outcome(UNDONE, f"{what}: {status}")
        if status in (404, 410) and inverse.get("is_gone_done"):
            return Outcome(UNDONE, f"{what}: {status}, it was gone already")
        if status in (409, 412, 428):
            return Outcome(CONFLICT, f"{what}: {status}, somebody changed it since")
        if status == 0 and not answer.is_unsent:
            return Outcome(MANUAL, f"{what}: {answer.detail}; whether it was done is not known")
        if status in (500, 502, 504):
            return Outcome(MANUAL, f"{what}: {status}; whether it was done is not known")
        if 300 <= status < 400:
            return Outcome(FAILED, f"{what}: {status}, redirects are not followed")
        return Outcome(FAILED, f"{what}: {answer.detail or status}")


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A URL or word with what was renamed in it, at its end or before a slash."""
    for old, new in names.items():
        if text == old or text.startswith((old + "/", old + "?")):
            text = new + text[len(old) :]
    return text


def same(wanted: object, found: object) -> bool:
    """Whether two images say the same, apart from what servers change by themselves."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = {k for k in (*wanted, *found) if str(k).lower() not in VOLATILE}
        return all(same(wanted.get(k), found.get(k)) for k in keys)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(same, wanted, found))
    return wanted == found


def differences(wanted: object, found: object) -> str:
    """Names of the fields that differ."""
    if not (isinstance(wanted, dict) and isinstance(found, dict)):
        return "its content"
    keys = [str(k) for k in (*wanted, *(k for k in found if k not in wanted)) if str(k).lower() not in VOLATILE]
    return ", ".join(k for k in keys if not same(wanted.get(k), found.get(k)))[:200]


def new_url(collection: str, answer: Answer) -> str | None:
    """Where the server put what was made: Location, or the id of the answer beneath the collection."""
    from urllib.parse import quote, urljoin

    location = answer.header("Location")
    if location:
        return urljoin(collection, location)
    found = _json(answer)
    id = found.get("id") if isinstance(found, dict) else None
    return f"{collection.rstrip('/')}/{quote(str(id), safe='')}" if isinstance(id, (str, int)) else None


def _wait_s(answer: Answer, attempt: int) -> float:
    text = answer.header("Retry-After")
    asked = float(text) if text.isdecimal() else 0.2 * 2**attempt
    return min(asked, _LONGEST_WAIT_S)


def _body(inverse: Mapping[str, object], headers: dict[str, str], names: Mapping[str, str]) -> bytes | None:
    """The bytes to send; sets the content type."""
    from json import dumps
    from urllib.parse import urlencode

    if "json" in inverse:
        headers.setdefault("Content-Type", "application/json")
        return dumps(inverse["json"]).encode()
    if "form" in inverse:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        return urlencode({k: names.get(str(v), str(v)) for k, v in _map(inverse["form"]).items()}).encode()
    if "text" in inverse:
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        return str(inverse["text"]).encode()
    return None


def _json(answer: Answer) -> object:
    from json import loads

    try:
        return loads(answer.body)
    except ValueError:
        return None


def _contains(found: object, wanted: object) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(k in found and _contains(found[k], v) for k, v in wanted.items())
    return found == wanted


def _map(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
