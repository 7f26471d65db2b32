"""What undoes an HTTP call, by the catalog's rule or by REST convention, from request, before-image and answer. Pure.

    POST to a collection, 201 and Location or id     DELETE of what was made
    POST to a thing, answered with no other id   its before-image back; never DELETE
    POST to a thing, 201 and another Location or id  DELETE of that: it was a container
    PUT, PATCH                                   the before-image back; there was none (404), and now is: DELETE
    PATCH that the server merges                 what it touched back, null for what it added (`merging`)
    DELETE                                       PUT where it was, else POST to the collection under a new id
    all else                                     irreversible, with the reason

`outlook` is what can be told before anything is sent; policy decides by it. `verdict` is what the answer makes of it.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urldefrag, urljoin

from reprieve.effects import calls, images, merging
from reprieve.effects.compare import as_part, same, settled
from reprieve.effects.strategy import choose
from reprieve.effects.wire import Answer, origin
from reprieve.model.effect import DONE, IRREVERSIBLE, OPAQUE, REFUSED, RESTORABLE, REVERSIBLE, UNKNOWN
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.effects.calls import Call
    from reprieve.model.effect import Json

    Hide = Callable[[object], object]
    Rules = Callable[[Call], "Rule | None"]

_GONE = (404, 410)
_IDS = ("id", "_id", "uuid", "sid")


class Rule(Value):
    """What the catalog knows about a call.

    `inverse` is a template: {response.NAME} is filled in from the answer. `undo` makes the inverse of (answer,
    before-image) instead, and raises Refused where something that it needs is not there.
    """

    id: str
    cls: str
    inverse: Json | None = None
    is_keyed: bool = False  # the host honours Idempotency-Key
    verify: Json | None = None
    window_ns: int = 0  # how long it can be undone, 0: not known
    charges: tuple[tuple[str, float], ...] = ()  # what it takes from budgets: ("messages", 1)
    unknown: tuple[int, ...] = ()  # statuses after which it may have happened
    is_pass: bool = False  # not looked into at all
    undo: Callable[[object, object], Json] | None = None
    before: str = ""  # URL whose state before the call `undo` needs
    note: str = ""
    has_secrets: bool = False  # the answer holds what must not be kept


class Outlook(Value):
    """What is known before it leaves: the class that policy decides by, and the inverse where it is certain already."""

    cls: str
    why: str  # why it can't be taken back, "" if it can
    resource: str
    depends: tuple[str, ...] = ()
    inverse: Json | None = None
    verify: Json | None = None  # how to find out later whether it happened


class Verdict(Value):
    """What the answer makes of it."""

    cls: str
    inverse: Json | None
    resource: str
    why: str = ""
    look: str = ""  # URL whose state now is the after-image, "" for none


def first_look(call: Call, rule: Rule | None) -> str:
    """The URL to look at before it is sent, "" if a look tells nothing."""
    if rule is not None:
        return rule.before
    if call.method in ("PUT", "PATCH", "DELETE"):
        return call.url
    if call.method != "POST" or calls.graphql(call) is not None:
        return ""
    if calls.looks_like_collection(call.last):
        own = _own_id(call)
        return f"{call.place.rstrip('/')}/{quote(own, safe='')}" if own else ""
    return "" if calls.is_outward(call) else call.url


def outlook(call: Call, before: Answer | None, rule: Rule | None, hide: Hide) -> Outlook:
    """What to expect of it."""
    resource, depends = call.place, calls.needs(call)
    if rule is not None:
        why = rule.note or f"rule {rule.id}: there is no way back"
        if (rule.inverse is not None or rule.undo is not None) and not images_needed(rule, before):
            why = ""
        elif rule.undo is not None:
            return Outlook(IRREVERSIBLE, images.why_not_kept(before, call.method), resource, depends)
        return Outlook(rule.cls, why, resource, depends, None, rule.verify)
    if call.header("upgrade"):
        return Outlook(
            OPAQUE, f"it opens a {call.header('upgrade')} channel; what goes through it is not seen", resource
        )
    if call.method in ("PUT", "PATCH", "DELETE"):
        made = _of_instance(call, before, hide)
    elif call.method == "POST":
        made = _of_post(call, before, hide)
    else:
        made = Outlook(IRREVERSIBLE, f"{call.method} has no inverse that is known", resource)
    return made.replace(depends=depends)


def images_needed(rule: Rule, before: Answer | None) -> bool:
    """Whether the rule's inverse needs a before-image that is not there."""
    return bool(rule.before) and calls.json_of(before if before is not None and before.status == 200 else None) is None


def outcome(answer: Answer, rule: Rule | None, call: Call) -> tuple[str, str]:
    """(done, refused or unknown; the words for it)."""
    status = answer.status
    if status == 0:
        if answer.is_unsent:
            return REFUSED, f"it never left: {answer.detail}"
        return UNKNOWN, f"no answer came ({answer.detail}); it may have happened"
    if status in (rule.unknown if rule is not None else ()) or status == 408 or (status >= 500 and status != 501):
        return UNKNOWN, f"answered {status}; it may have happened"
    if status == 202 and _operation(call, answer):
        return UNKNOWN, "accepted and still under way when the answer came"
    if status >= 400 or status in (304, 307, 308):
        return REFUSED, f"answered {status}"
    return DONE, f"answered {status}"


def later(call: Call, answer: Answer) -> Json | None:
    """How to learn what became of an operation that was accepted (202), None if it was no such thing."""
    url = _operation(call, answer) if answer.status == 202 else ""
    return {"url": url, "is_operation": True} if url else None


def verdict(call: Call, before: Answer | None, answer: Answer, expected: Outlook, hide: Hide) -> Verdict:
    """Class and inverse of a call that was done."""
    if answer.status == 207:
        return _none(call, "it was a batch that was done in part; its members are not told apart")
    if call.method != "POST":
        gone = call.method == "DELETE"
        if gone and expected.inverse is None and not expected.why:
            return _none(call, "a look before it found nothing there, so what it deleted, if anything, is not kept")
        return Verdict(expected.cls, expected.inverse, expected.resource, expected.why, "" if gone else call.url)
    if expected.cls in (IRREVERSIBLE, OPAQUE):
        return _none(call, expected.why, cls=expected.cls)
    return _after_post(call, before, answer, expected, hide)


def after_look(call: Call, before: Answer | None, verdict: Verdict, now: Answer, reply: Answer, hide: Hide) -> Verdict:
    """The verdict with what a look right after the call tells: the state that the inverse must still find.

    A DELETE needs the thing to be shown there. Else it would hit something else or nothing, and the 404 of the look
    before told nothing either: what is not shown may well have been there.
    """
    if verdict.inverse is None:
        return verdict
    if verdict.inverse.get("method") != "DELETE":
        if _is_untouched(call, before, now, reply):
            why = "a look right after it found the thing as it was before, so what the POST did can't be told"
            return verdict.replace(cls=IRREVERSIBLE, inverse=None, why=why)
        return verdict.replace(inverse=_with_after(call, verdict.inverse, verdict.look, now, reply, hide))
    if now.status in _GONE:
        why = (
            f"a look right after it found nothing there (GET answers {now.status}), so a DELETE there does not undo it"
        )
        return verdict.replace(cls=IRREVERSIBLE, inverse=None, why=why)
    if now.status != 200:
        return verdict
    said, shown = _id_of(calls.json_of(reply)), calls.json_of(now)
    is_read_off = "check" not in verdict.inverse  # where it is was told by the answer alone: no look before found a 404
    if is_read_off and (isinstance(shown, list) or (said and _id_of(shown) not in ("", said))):
        why = "a look right after it found something else there, so a DELETE there does not undo it"
        return verdict.replace(cls=IRREVERSIBLE, inverse=None, why=why)
    seen = {**verdict.inverse, "is_gone_done": True}
    return verdict.replace(inverse=_with_after(call, seen, verdict.look, now, reply, hide))


def _with_after(call: Call, inverse: Json, url: str, now: Answer, reply: Answer, hide: Hide) -> Json:
    """The inverse with our own after-image."""
    if now.status != 200 or now.detail:
        return inverse
    etag, said = now.header("ETag"), reply.header("ETag")
    if said and etag and said != etag:
        return {**inverse, "check": {"url": url, "etag": said}}  # somebody was there between the two: not our image
    old = inverse.get("check")
    part = old.get("json") if isinstance(old, dict) and old.get("is_part") else None
    found, sent = calls.json_of(now), hide(_sent(call))
    check: Json = {"url": url, **({"etag": etag} if etag else {})}
    if inverse.get("method") in ("PATCH", "POST") and isinstance(part, dict) and isinstance(found, dict):
        # what others do to other fields is theirs and stays
        was, is_deep = inverse.get("json"), isinstance(old, dict) and bool(old.get("is_deep"))
        if not is_deep and isinstance(was, dict) and merging.was_merged(part, was, found):
            inverse, is_deep = {**inverse, "json": merging.back(part, was)}, True
        found = as_part(part, found, other=inverse.get("json") if is_deep else None)
        check |= {"is_part": True, **({"is_deep": True} if is_deep else {})}
    if found is not None:
        seen = settled(hide(found), before=inverse.get("json"), sent=sent)
        return {**inverse, "check": {**check, "json": seen, "is_settled": True}}
    return {**inverse, "check": {**check, "sha256": images.digest(now.body)}}


# -- PUT, PATCH, DELETE


def _of_instance(call: Call, before: Answer | None, hide: Hide) -> Outlook:
    resource = call.place
    if before is not None and before.status in _GONE:
        if call.method == "DELETE":
            return Outlook(REVERSIBLE, "", resource)  # there is nothing to delete
        back: Json = {"method": "DELETE", "url": call.url, "check": _sent_check(call, call.url, hide)}
        return Outlook(choose(has_before_image=True).cls, "", resource, inverse=back, verify={"url": call.url})
    why = images.why_not_kept(before, call.method)
    if why:
        return Outlook(IRREVERSIBLE, why, resource)
    assert before is not None
    was = calls.json_of(before)
    if call.method == "DELETE":
        return _of_delete(call, was, before, hide)
    sent = call.json
    if unseen := images.unseen(sent, was):
        return Outlook(
            IRREVERSIBLE, f"the field '{unseen}' is not shown by the server, so it can't be put back", resource
        )
    old: object = _old_fields(call, sent, was)
    if old is not None:
        back = {"method": "PATCH", "url": call.url, "json": old, "type": call.header("content-type")}
    elif was is not None:
        old, back = was, {"method": "PUT", "url": call.url, "json": was}
    elif call.method == "PUT":
        old, back = images.raw(before).get("text"), {"method": "PUT", "url": call.url, **images.raw(before)}
    else:
        return Outlook(IRREVERSIBLE, "it changes a part of something that is no JSON", resource)
    lossy = images.lossy(old, hide)
    if lossy:
        return Outlook(IRREVERSIBLE, lossy, resource)
    verify: Json = {"url": call.url, **({"before": hide(was)} if was is not None else {})}
    back["check"] = check = _sent_check(call, call.url, hide)
    if "json" in check:
        verify["json"] = check["json"]
    if back["method"] == "PATCH" and merging.is_merge(call.header("content-type")):
        check["is_deep"] = True
    return Outlook(REVERSIBLE, "", resource, inverse=back, verify=verify)


def _old_fields(call: Call, sent: object, was: object) -> Json | None:
    """What a PATCH touched, as it was; None if it takes more than a PATCH to bring that back."""
    if call.method != "PATCH" or not isinstance(sent, dict) or not isinstance(was, dict):
        return None
    if merging.is_merge(call.header("content-type")):
        return merging.back(sent, was)
    return {key: was[key] for key in sent} if all(key in was for key in sent) else None


def _of_delete(call: Call, was: object, before: Answer, hide: Hide) -> Outlook:
    resource = call.place
    if was is None:
        back: Json = {"method": "PUT", "url": call.url, **images.raw(before)}
        if lossy := images.lossy(back.get("text"), hide):
            return Outlook(IRREVERSIBLE, lossy, resource)
    elif calls.is_listing(was) or not isinstance(was, dict):
        return Outlook(IRREVERSIBLE, "it deletes a whole collection", resource)
    else:
        lossy, parts = images.lossy(was, hide), images.has_parts(was)
        if lossy:
            return Outlook(IRREVERSIBLE, lossy, resource)
        if parts:
            return Outlook(
                IRREVERSIBLE, f"it has parts of its own ('{parts}') that would not come back with it", resource
            )
        back = {"method": "PUT", "url": call.url, "json": was}
        back["make"] = {"url": calls.parent(call.place), "json": images.without_server_fields(was)}
    back["check"] = {"url": call.url, "absent": True}
    verify: Json = {"url": call.url, "absent": True, **({"before": was} if was is not None else {})}
    return Outlook(choose(has_before_image=True).cls, "", resource, inverse=back, verify=verify)


# -- POST


def _of_post(call: Call, before: Answer | None, hide: Hide) -> Outlook:
    resource = call.place
    operation = calls.graphql(call)
    if operation is not None:
        names = ", ".join(operation[1]) or "not told"
        return Outlook(IRREVERSIBLE, f"a GraphQL mutation ({names}) that no rule knows", resource)
    if calls.is_outward(call):
        return Outlook(
            IRREVERSIBLE, f"'{call.last}' is seen or paid for outside; no rule knows how to take it back", resource
        )
    if isinstance(call.json, list):
        return Outlook(IRREVERSIBLE, "a batch; its members are not told apart", resource)
    own = _own_id(call)
    if calls.looks_like_collection(call.last):
        url = f"{call.place.rstrip('/')}/{quote(own, safe='')}"
        if own and before is not None and before.status == 200:
            return _of_instance(call.replace(method="PUT", url=url), before, hide)  # it is there: this writes over it
        if own and before is not None and before.status in _GONE:
            back: Json = {"method": "DELETE", "url": url, "check": _sent_check(call, url, hide)}
            return Outlook(RESTORABLE, "", url, inverse=back, verify={"url": url})
        return Outlook(RESTORABLE, "", resource)
    if before is None or before.status != 200:
        return Outlook(IRREVERSIBLE, f"what POST to '{call.last}' does can't be told, and no rule knows it", resource)
    was = calls.json_of(before)
    if calls.is_listing(was):
        return Outlook(RESTORABLE, "", resource)
    return _of_update(call, was, hide)


def _of_update(call: Call, was: object, hide: Hide) -> Outlook:
    """A POST that changes a thing which is there: what it sends is put back, in the same form."""
    resource = call.place
    if not isinstance(was, dict) or str(_id_of(was)) != call.last:
        return Outlook(IRREVERSIBLE, f"what POST to '{call.last}' does can't be told, and no rule knows it", resource)
    sent, is_form = _sent(call), _is_form(call)
    if not isinstance(sent, dict):
        return Outlook(IRREVERSIBLE, "what it sends can't be read", resource)
    unseen = images.unseen(sent, was)
    if unseen:
        return Outlook(
            IRREVERSIBLE, f"the field '{unseen}' is not shown by the server, so it can't be put back", resource
        )
    check = {"url": call.place, "json": hide(sent), "is_part": True} if not is_form else {"url": call.place}
    old = {key: was[key] for key in sent if key in was}
    if len(old) < len(sent):
        back: Json = {"method": "PUT", "url": call.place, "json": was, "check": check}
    elif is_form and all(isinstance(v, (str, int)) and not isinstance(v, bool) for v in old.values()):
        back = {"method": "POST", "url": call.place, "form": {k: str(v) for k, v in old.items()}, "check": check}
    elif is_form:
        return Outlook(IRREVERSIBLE, "its fields can't be put back as a form", resource)
    else:
        back = {"method": "POST", "url": call.place, "json": old, "check": check}
    back["is_idempotent"] = True
    lossy = images.lossy(old if len(old) == len(sent) else was, hide)
    if lossy:
        return Outlook(IRREVERSIBLE, lossy, resource)
    verify: Json = {"url": call.place, "before": hide(was)}
    if not is_form:
        verify["json"] = hide(sent)
    return Outlook(REVERSIBLE, "", resource, inverse=back, verify=verify)


def _after_post(call: Call, before: Answer | None, answer: Answer, expected: Outlook, hide: Hide) -> Verdict:
    found = calls.json_of(answer)
    id = _id_of(found)
    if expected.inverse is not None:
        is_made = expected.inverse.get("method") == "DELETE"
        url = str(expected.inverse["url"])
        if is_made and id in ("", _own_id(call)):
            if answer.status != 201 and not id:
                return _none(call, f"answered {answer.status} without saying what was made")
            return Verdict(expected.cls, expected.inverse, expected.resource, look=url)
        if not is_made and _is_update(call, answer, url, id):
            return Verdict(expected.cls, expected.inverse, expected.resource, look=url)
    if id and id == call.last:
        return _none(call, "it changed something that was there, and there is no before-image")
    location = answer.header("Location")
    if location:
        url = urldefrag(urljoin(call.url, location))[0]
        if origin(url) != call.origin:
            return _none(call, f"what was made is said to be at {origin(url)}; an effect is undone where it was done")
        if url.partition("?")[0].rstrip("/") == call.place.rstrip("/"):
            return _none(call, "the answer points back at what was asked; nothing says that something was made")
    elif id:
        url = f"{call.place.rstrip('/')}/{quote(id, safe='')}"
    else:
        return _none(call, f"answered {answer.status} without saying what was made")
    if answer.status != 201:
        # an upsert names what it wrote over in just this way: a DELETE might take what was there before
        return _none(call, "nothing says that something was made")
    return Verdict(RESTORABLE, {"method": "DELETE", "url": url}, url.partition("?")[0], look=url)


def _is_update(call: Call, answer: Answer, url: str, id: str) -> bool:
    """Whether the answer may be about the thing that was asked, and not about another that was made in it."""
    if id:
        return id == calls.last_of(url)
    location = urljoin(call.url, answer.header("Location") or url)
    is_elsewhere = location.partition("?")[0].rstrip("/") != url.partition("?")[0].rstrip("/")
    # a redirect may lead to any page; whether the thing changed is for the look afterwards to tell
    return answer.status != 201 and (answer.status >= 300 or not is_elsewhere)


def _is_untouched(call: Call, before: Answer | None, now: Answer, reply: Answer) -> bool:
    """Whether a thing is as it was after a POST to it that does not say to be about it: it did something else."""
    was, found = calls.json_of(before), calls.json_of(now)
    if call.method != "POST" or now.status != 200 or not isinstance(was, dict) or _id_of(calls.json_of(reply)):
        return False
    return same(settled(found, before=was, sent=_sent(call)), was)


# -- inside


def _none(call: Call, why: str, *, cls: str = IRREVERSIBLE) -> Verdict:
    return Verdict(cls, None, call.place, why)


def _own_id(call: Call) -> str:
    """The id that the caller chose for what it makes."""
    return _id_of(call.json)


def _id_of(found: object) -> str:
    """The id in what was said, also one level down in an envelope."""
    if not isinstance(found, dict):
        return ""
    for name in _IDS:
        if isinstance(found.get(name), (str, int)) and not isinstance(found[name], bool) and found[name] != "":
            return str(found[name])
    inner = found.get("data", next(iter(found.values())) if len(found) == 1 else None)
    return _id_of(inner) if isinstance(inner, dict) else ""


def _is_form(call: Call) -> bool:
    return call.header("content-type").startswith("application/x-www-form-urlencoded")


def _sent(call: Call) -> object:
    """What it sends, as far as it can be read."""
    return dict(parse_qsl((call.body or b"").decode("utf-8", "replace"), True)) if _is_form(call) else call.json


def _sent_check(call: Call, url: str, hide: Hide) -> Json:
    """Until there is an after-image: what was sent must be there."""
    sent = call.json
    if isinstance(sent, dict) and sent:
        return {"url": url, "json": hide(sent), "is_part": True}
    if call.method == "PUT" and isinstance(sent, list):
        return {"url": url, "json": hide(sent)}
    if call.method == "PUT" and sent is None and call.body:
        return {"url": url, "sha256": images.digest(call.body)}
    return {"url": url}


def _operation(call: Call, answer: Answer) -> str:
    for name in ("Operation-Location", "Azure-AsyncOperation", "Location"):
        if answer.header(name):
            url = urljoin(call.url, answer.header(name))
            return url if origin(url) == call.origin else ""
    return ""
