"""Before-images of what an HTTP call changes: whether one can be put back whole, and what of it is the server's own."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.effects.wire import Answer
    from reprieve.model.effect import Json

# values that stand for something which is not shown
_MASKED = re.compile(
    r"\*{3,}|•{3,}|●{3,}|^x{6,}$|^[\[<(]?(redacted|hidden|masked|filtered|secret)[\])>]?$", re.IGNORECASE
)
# what a server sets by itself, and may not take from others
_SERVERS = re.compile(
    r"^(id|_id|created\w*|updated\w*|modified\w*|etag|_etag|_?links|href|url|self|revision)$", re.IGNORECASE
)
# names that point at more than the image holds
_PARTS = re.compile(r"(_urls?|_links?|_count|Count|_total)$|^(children|_embedded)$")
_WRITE_ONLY = re.compile(r"pass(word|wd|phrase)|secret|token|api_?key|private_?key|pin$|cvc|cvv", re.IGNORECASE)


def why_not_kept(before: Answer | None, method: str) -> str:
    """Why there is no before-image that could be put back, "" if there is one."""
    if before is None:
        return f"{method} without a look at what was there"
    if before.status == 0:
        return f"what was there could not be looked at ({before.detail})"
    if before.status != 200:
        return f"what was there could not be looked at (GET answers {before.status})"
    if before.detail:
        return f"what was there is not kept whole ({before.detail})"
    return ""


def lossy(value: object, hide: Callable[[object], object], name: str = "") -> str:
    """Why an image can't be put back as it was, "" if it can: masked by the server, or a secret that is not kept."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if found := lossy(inner, hide, f"{name}.{key}" if name else str(key)):
                return found
            if inner not in (None, "", True, False) and hide({key: inner}) != {key: inner}:
                where = f"{name}.{key}" if name else key
                return (
                    f"the field '{where}' seems to be a secret, which the journal does not keep; it can't be put back"
                )
    elif isinstance(value, list):
        for inner in value:
            if found := lossy(inner, hide, name):
                return found
    elif isinstance(value, str) and not name:
        return "" if hide(value) == value else "it holds what seems to be a secret, which the journal does not keep"
    elif isinstance(value, str) and _MASKED.search(value):
        return f"the field '{name}' is masked by the server, so it can't be put back"
    return ""


def unseen(sent: object, was: object) -> str:
    """A field that was sent and that the server does not show although it may well have had a value."""
    if not (isinstance(sent, dict) and isinstance(was, dict)):
        return ""
    for key, inner in sent.items():
        if key not in was and _WRITE_ONLY.search(str(key)):
            return str(key)
        if within := unseen(inner, was.get(key)):
            return f"{key}.{within}"
    return ""


def has_parts(was: Json) -> str:
    """A field that points at parts which the image does not hold, "" if there is none."""
    return next((key for key, value in was.items() if _PARTS.search(key) and value not in (None, "", 0, [], {})), "")


def without_server_fields(value: object) -> object:
    """The same without what a server sets by itself."""
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if not _SERVERS.match(str(key))}
    return value


def raw(before: Answer) -> Json:
    """A body that is no JSON, as an inverse keeps it."""
    type = before.header("Content-Type")
    try:
        return {"text": before.body.decode(), "type": type}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(before.body).decode(), "type": type}


def digest(data: bytes) -> str:
    from reprieve.store.hashing import sha256

    return sha256(data).hex()
