"""Undo by an HTTP request that was frozen when the effect was recorded.

    inverse = {"kind": "http", "method": ..., "url": ..., "origin": of the forward call, "address": its inner address,
               "headers": {name: value or credential reference}, "fingerprints": {reference: keyed fingerprint},
               "json" | "form" | "text" | "base64": ..., "type": content type      the body
               "references": [values in json or form that name a credential, put in when it is sent]
               "is_gone_done": bool      it was seen there, as we or the recorder say: 404 and 410 mean as wished
               "is_idempotent": bool                               may be sent again if nobody knows whether it arrived
               "key_hours": how long the server remembers a key    24 unless somebody knows better
               "check": {"url", "etag", "json", "sha256", "absent"      how the resource must look before it
                         "is_part": the fields named alone, "is_deep": of objects inside them too, as merges go,
                         "is_settled": it is an image after the call, with a mask for what the server sets itself}
               "is_verified": bool                                 look afterwards whether it is as wished
               "make": {"url", "json"}}                            another way if the first is not possible: a new id

A request that was recorded may say how to learn later whether it happened:

    request["verify"] = {"url", "json": is there if it was done, "before": was there if not, "absent", "is_operation"}

Every request carries the undo's own idempotency key.
"""

from __future__ import annotations

from reprieve.effects import compare, images, wire
from reprieve.effects.compare import differences, renamed, same, with_names
from reprieve.effects.credentials import is_reference, resolve
from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.errors import ReprieveError
from reprieve.model.effect import CONFLICT, DONE, FAILED, MANUAL, UNDOING, UNDONE, UNKNOWN
from reprieve.model.effect import REFUSED as NOT_DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.effects.wire import Answer, Egress
    from reprieve.model.effect import Effect

_TRIES = 4
_KEY_HOURS = 24
_LONGEST_WAIT_S = 30.0
_LOOKS = 5


class HttpDriver:
    """Sends the request."""

    def __init__(
        self,
        egress: Egress,
        *,
        sign: Callable[[bytes], str],
        sleep: Callable[[float], None],
        clock: Callable[[], int],
    ) -> None:
        self._egress, self._sign, self._sleep, self._clock = egress, sign, sleep, clock

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
            self._secrets(inverse)
        except ReprieveError as e:
            return Check(UNCLEAR, e.message)
        if why := _unproven(effect):
            return Check(UNCLEAR, why)
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
            # an undo of ours that was interrupted had seen it there, or would not have begun
            if inverse.get("is_gone_done") or (effect.undo_state == UNDOING and inverse.get("method") == "DELETE"):
                return Check(ALREADY, "it is gone already")
            return Check(CHANGED, f"{url} is gone")
        if wanted.get("absent"):
            before = with_names(inverse.get("json"), names, url=str(inverse.get("url")))
            if before is not None and same(compare.settled(before), _json(answer)):
                return Check(ALREADY, "it is there again already")
            return Check(CHANGED, f"{url} is there again, and not as it was")
        found = self._compared(wanted, inverse, answer, names, url)
        is_seen = (effect.after or {}).get("status") == 200 or effect.undo_state == UNDOING
        if found.state == ALREADY and (effect.request or {}).get("method") == "POST" and not is_seen:
            return Check(UNCLEAR, f"{url} is as it was before the POST, which may have done something else instead")
        return found

    def _compared(
        self,
        wanted: Mapping[str, object],
        inverse: Mapping[str, object],
        answer: Answer,
        names: Mapping[str, str],
        url: str,
    ) -> Check:
        is_new = url != str(wanted["url"])  # made anew under another name: its ETag and its times are new as well
        if "json" in wanted:
            is_part, is_deep = bool(wanted.get("is_part")), bool(wanted.get("is_deep"))
            target, now = with_names(_after(wanted), names, url=str(wanted["url"])), _json(answer)
            back = with_names(inverse.get("json"), names, url=str(wanted["url"]))
            back = compare.blinded(back, target)
            if is_new:
                target, now, back = compare.own(target), compare.own(now), compare.own(back)
            seen = compare.as_part(target, now, other=back if is_deep else None) if is_part else now
            if same(target, seen):
                return Check(READY)
            if back is not None and same(
                back, compare.as_part(back, now, other=target if is_deep else None) if is_part else now
            ):
                return Check(ALREADY, "it is as it was before already")
            return Check(CHANGED, f"{url} was changed since: {differences(target, seen, is_part=is_part)}")
        if "sha256" in wanted:
            if wanted["sha256"] == images.digest(answer.body):
                return Check(READY)
            return Check(CHANGED, f"{url} was changed since")
        if not is_new and wanted.get("etag") and answer.header("ETag") and answer.header("ETag") != wanted["etag"]:
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
            body = _body(inverse, extra, names, self._secrets(inverse))
            answer = self._patiently(method, url, inverse, extra, body)
            if answer.status in (400, 422) and inverse.get("is_verified") and isinstance(inverse.get("json"), dict):
                # some servers don't take back the fields that they set themselves
                slim = {**inverse, "json": images.without_server_fields(inverse["json"])}
                answer = self._patiently(method, url, inverse, extra, _body(slim, extra, names, self._secrets(inverse)))
            make = _map(inverse.get("make"))
            if make and answer.status in (404, 405, 501):
                return self._make(effect, make, names)
        except ReprieveError as e:
            return Outcome(FAILED, e.message)
        judged = self._judge(answer, inverse, f"{method} {url}")
        if judged.undo_state == UNDONE and inverse.get("is_verified") and wanted:
            return self._verified(judged, inverse, names)
        return judged

    def _verified(self, judged: Outcome, inverse: Mapping[str, object], names: Mapping[str, str]) -> Outcome:
        """Look whether it is as wished; a server may need a moment to show it."""
        old = str(inverse.get("url"))
        url, is_delete = renamed(old, names), inverse.get("method") == "DELETE"
        wish, after = with_names(inverse.get("json"), names, url=old), _after(_map(inverse.get("check")))
        # made anew, it has what servers set when they make a thing; else all that was touched must be as it was
        is_new = url != old or after is None
        wish = compare.settled(compare.own(wish)) if is_new else compare.blinded(wish, after)
        for attempt in range(_LOOKS):
            if attempt:
                self._sleep(0.1 * 2**attempt)
            look = self._send("GET", url, inverse, {}, None)
            if is_delete:
                if look.status in (404, 410):
                    return judged
                left = "it is still there"
            elif look.status != 200 or wish is None:
                left = ""
            else:
                found = compare.own(_json(look)) if is_new else _json(look)
                added = ", ".join(compare.left_of(after, wish, found))[:200]
                if compare.contains(found, wish) and not added:
                    return judged
                # a PUT that merges, too, answers 200 and takes nothing away
                left = f"it still has: {added}" if added else f"it is not as it was in: {_lost(wish, found)}"
            if look.status == 0 or look.status in (401, 403, 405, 429) or look.status >= 500 or not left:
                return judged.replace(detail=f"{judged.detail}; it could not be looked at afterwards")
        return Outcome(MANUAL, f"{judged.detail}, but {left}")

    def resolve(self, effect: Effect) -> str:
        verify = _map((effect.request or {}).get("verify"))
        if not verify:
            return UNKNOWN
        try:
            answer = self._send(
                "GET", str(verify["url"]), {**(effect.inverse or {}), **(effect.request or {})}, {}, None
            )
        except ReprieveError:
            return UNKNOWN
        found, before = _json(answer), verify.get("before")
        if verify.get("is_operation"):
            return _ended(found) if answer.status == 200 else UNKNOWN
        if answer.status in (404, 410):
            # what was there is gone: somebody else was at it. Nothing was there before either: perhaps it never shows
            return DONE if verify.get("absent") else UNKNOWN
        if answer.status != 200:
            return UNKNOWN
        if before is not None and "json" in verify and _is_new_there(verify["json"], found, before):
            return DONE
        if before is not None and same(compare.by_name(before), found):
            return NOT_DONE
        if verify.get("absent"):
            return UNKNOWN
        if "json" in verify and not compare.contains(found, verify["json"]):
            return NOT_DONE if verify.get("is_certain") else UNKNOWN
        return UNKNOWN if before is not None and "json" not in verify else DONE

    def may_repeat(self, effect: Effect) -> bool:
        inverse = effect.inverse or {}
        if str(inverse.get("method")).upper() in ("PUT", "DELETE"):
            return True
        # by its key alone, and a server forgets keys
        hours = float(str(inverse.get("key_hours") or _KEY_HOURS))
        is_known = not effect.undo_at or self._clock() - effect.undo_at < hours * 3600e9
        return bool(inverse.get("is_idempotent")) and is_known

    # -- inside

    def _make(self, effect: Effect, make: Mapping[str, object], names: Mapping[str, str]) -> Outcome:
        """What was deleted comes back under a new id."""
        inverse = effect.inverse or {}
        url, extra = renamed(str(make["url"]), names), {"Idempotency-Key": effect.undo_idem}
        body = _body({"json": make.get("json"), "url": ""}, extra, names, {})
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
        address = self._egress(str(inverse.get("origin") or ""), url, str(inverse.get("address") or ""))
        headers = {"User-Agent": "reprieve", "Accept": "*/*", **self._headers(inverse), **extra}
        return wire.send(method, url, address=address, headers=headers, body=body)

    def _headers(self, inverse: Mapping[str, object]) -> dict[str, str]:
        prints = _map(inverse.get("fingerprints"))
        found = {}
        for name, value in _map(inverse.get("headers")).items():
            text = str(value)
            found[name] = self._resolved(text, prints) if is_reference(text) else text
        return found

    def _secrets(self, inverse: Mapping[str, object]) -> dict[str, str]:
        """Reference → what it stands for, of those in the body."""
        named = inverse.get("references")
        prints = _map(inverse.get("fingerprints"))
        return {str(each): self._resolved(str(each), prints) for each in named} if isinstance(named, list) else {}

    def _resolved(self, reference: str, prints: Mapping[str, object]) -> str:
        secret, known = resolve(reference), prints.get(reference)
        if known and self._sign(secret.encode()) != known:
            from reprieve.errors import Refused

            raise Refused(
                f"the credential '{reference}' is not the one that the effect was made with; nothing was sent",
                hints=["it may belong to another account; set the one that was used"],
            )
        return secret

    def _judge(self, answer: Answer, inverse: Mapping[str, object], what: str) -> Outcome:
        status = answer.status
        if 200 <= status < 300:
            return Outcome(UNDONE, f"{what}: {status}")
        if status in (404, 410) and inverse.get("is_gone_done"):
            return Outcome(UNDONE, f"{what}: {status}, it was gone already")
        if status in (404, 410) and inverse.get("method") == "DELETE":
            return Outcome(MANUAL, f"{what}: {status}; whether it is gone or the address is wrong is not known")
        if status in (409, 412, 428):
            return Outcome(CONFLICT, f"{what}: {status}, somebody changed it since")
        if status == 0 and not answer.is_unsent:
            return Outcome(MANUAL, f"{what}: {answer.detail}; whether it was done is not known")
        if status in (500, 502, 504):
            return Outcome(MANUAL, f"{what}: {status}; whether it was done is not known")
        if 300 <= status < 400:
            return Outcome(FAILED, f"{what}: {status}, redirects are not followed")
        return Outcome(FAILED, f"{what}: {answer.detail or status}")


def new_url(collection: str, answer: Answer) -> str | None:
    """Where the server put what was made: Location, or the id of the answer beneath the collection."""
    from urllib.parse import quote, urljoin

    location = answer.header("Location")
    if location:
        return urljoin(collection, location)
    found = _json(answer)
    id = found.get("id") if isinstance(found, dict) else None
    return f"{collection.rstrip('/')}/{quote(str(id), safe='')}" if isinstance(id, (str, int)) else None


def _unproven(effect: Effect) -> str:
    """Why an inverse that was read off a call may not take back what the call did; "" if it does.

    Such effects are irreversible as soon as they are recorded; journals of older versions have them with an inverse.
    """
    inverse, request = effect.inverse or {}, effect.request or {}
    if not inverse.get("is_verified") or effect.rule:
        return ""
    if inverse.get("method") == "POST" and (effect.reply or {}).get("status") == 201:
        is_seen = _map(inverse.get("check")).get("is_settled")
        return "" if is_seen else "the call was answered 201, so it may have made something and changed nothing"
    if inverse.get("method") != "DELETE":
        return ""
    if (effect.after or {}).get("status") in (404, 410):
        return "a look right after the call found nothing there, so a DELETE there does not undo it"
    answered = (effect.reply or {}).get("status", 201)
    if request.get("method") == "POST" and effect.before is None and answered != 201:
        return f"the call was answered {answered}, which does not say that something was made"
    return ""


def _wait_s(answer: Answer, attempt: int) -> float:
    text = answer.header("Retry-After")
    asked = float(text) if text.isdecimal() else 0.2 * 2**attempt
    return min(asked, _LONGEST_WAIT_S)


def _body(
    inverse: Mapping[str, object], headers: dict[str, str], names: Mapping[str, str], secrets: Mapping[str, str]
) -> bytes | None:
    """The bytes to send; sets the content type."""
    from json import dumps
    from urllib.parse import urlencode

    if inverse.get("type"):
        headers["Content-Type"] = str(inverse["type"])
    if "json" in inverse:
        headers.setdefault("Content-Type", "application/json")
        return dumps(_filled(with_names(inverse["json"], names, url=str(inverse.get("url"))), secrets)).encode()
    if "form" in inverse:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        form = {k: names.get(str(v), str(v)) for k, v in _map(inverse["form"]).items()}
        return urlencode({k: secrets.get(v, v) for k, v in form.items()}, errors="surrogateescape").encode()
    if "text" in inverse:
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        return str(inverse["text"]).encode(errors="surrogateescape")
    if "base64" in inverse:
        from base64 import b64decode

        headers.setdefault("Content-Type", "application/octet-stream")
        return b64decode(str(inverse["base64"]))
    return None


def _filled(value: object, secrets: Mapping[str, str]) -> object:
    """The same with the credentials in it that it names."""
    if not secrets:
        return value
    if isinstance(value, dict):
        return {key: _filled(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, secrets) for inner in value]
    return secrets.get(value, value) if isinstance(value, str) else value


def _after(check: Mapping[str, object]) -> object:
    """How the call left it, with a mask for what the server changes by itself."""
    return check.get("json") if check.get("is_settled") else compare.by_name(check.get("json"))


def _is_new_there(sent: object, found: object, before: object) -> bool:
    return compare.contains(found, sent) and not compare.contains(before, sent)


def _lost(wish: object, found: object) -> str:
    return differences(wish, found, is_part=True)


def _ended(found: object) -> str:
    """What the description of an operation says about it."""
    said = found if isinstance(found, dict) else {}
    if said.get("done") is True:
        return NOT_DONE if said.get("error") else DONE
    word = str(said.get("status") or said.get("state") or "").lower()
    if word in ("succeeded", "success", "completed", "complete", "done", "finished"):
        return DONE
    return NOT_DONE if word in ("failed", "failure", "canceled", "cancelled", "error", "rejected") else UNKNOWN


def _json(answer: Answer) -> object:
    from json import loads

    try:
        return loads(answer.body)
    except ValueError:
        return None


def _map(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
