"""Make a frozen HTTP inverse from what a person, an SDK or a rule says. Pure but for reading credentials once."""

from __future__ import annotations

from urllib.parse import SplitResult, quote, urlsplit

from reprieve.effects.credentials import fingerprints, is_reference, is_right
from reprieve.effects.wire import origin
from reprieve.errors import Refused, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.model.effect import Json

_BODIES = ("json", "form", "text")
_KNOWN = ("method", "url", "headers", "is_idempotent", "is_gone_done", "check", "make", *_BODIES)


def http_inverse(
    undo: Mapping[str, object], *, forward: str, response: object = None, sign: Callable[[bytes], str]
) -> Json:
    """The inverse as the journal keeps it. Raises Usage, and Refused for another origin than the forward call's."""
    unknown = [name for name in undo if name not in _KNOWN]
    if unknown:
        raise Usage(f"an HTTP inverse has no '{unknown[0]}'", hints=[f"it has: {', '.join(_KNOWN)}"])
    url = fill(str(undo.get("url") or ""), response, is_url=True)
    method = str(undo.get("method") or "").upper()
    if not (method.isascii() and method.isalpha()) or not url:
        raise Usage("the request that reverses needs a method and a URL")
    parts = _split(url)
    _split(forward)
    # a rollback would not send it, so it must not be recorded as if it could be undone
    if any(ord(c) <= 32 or c in "\\\x7f" for c in url):
        raise Usage(
            f"{url!r} holds a space, a backslash or a control character, which no URL has",
            hints=["write it as %20, or as its code in hexadecimal digits"],
        )
    if parts.username or parts.password:
        raise Refused("a URL with a password in it would end up in the journal; use a header with env:VARIABLE")
    if origin(url) != origin(forward):
        raise Refused(
            f"the undo would go to {origin(url)}, the effect went to {origin(forward)}",
            hints=["an effect is undone where it was done"],
        )
    headers = {str(k): str(v) for k, v in _map(undo.get("headers")).items()}
    for name, value in headers.items():
        if is_right(name) and not is_reference(value):
            raise Refused(
                f"the value of '{name}' would be kept in the journal",
                hints=[f"refer to it: --undo-header '{name}: env:VARIABLE'"],
            )
        if any(c in "\r\n\0" for c in name + value):
            raise Usage(f"the header '{name}' holds a line break")
    inverse: Json = {"kind": "http", "method": method, "url": url, "origin": origin(forward), "headers": headers}
    prints = fingerprints(headers, sign)
    if prints:
        inverse["fingerprints"] = prints
    for name in _BODIES:
        if undo.get(name) is not None:
            inverse[name] = filled(undo[name], response)
    inverse["is_idempotent"] = bool(undo.get("is_idempotent", method in ("PUT", "DELETE")))
    # nobody saw the thing there: a slip in the URL is answered 404 as well, so only who records it can say so
    inverse["is_gone_done"] = bool(undo.get("is_gone_done"))
    for name in ("check", "make"):
        if undo.get(name) is not None:
            inverse[name] = filled(undo[name], response)
    return inverse


def _split(url: str) -> SplitResult:
    """Its parts. Raises Usage."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - looked at only here
    except ValueError as e:
        raise Usage(f"'{url}' is not an http or https URL: {e}") from e
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Usage(f"'{url}' is not an http or https URL")
    return parts


def filled(value: object, response: object) -> object:
    """The same with {response.NAME} replaced by what the response says; a whole text keeps the value's type."""
    if isinstance(value, dict):
        return {key: filled(item, response) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, response) for item in value]
    if isinstance(value, str):
        if value.startswith("{response.") and value.find("}") == len(value) - 1:
            return _value(value[1:-1], response)
        return fill(value, response)
    return value


def fill(text: str, response: object, *, is_url: bool = False) -> str:
    """Text with {response.a.b} replaced; in a URL the value is one segment, whatever it holds."""
    done, rest = "", text
    while "{response." in rest:
        before, _, after = rest.partition("{response.")
        name, closed, rest = after.partition("}")
        if not closed:
            raise Usage(f"'{text}' lacks a closing brace")
        value = str(_value("response." + name, response))
        done += before + (quote(value, safe="") if is_url else value)
    return done + rest


def _value(path: str, response: object) -> object:
    found = response
    for name in path.split(".")[1:]:
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise Usage(f"the response has no '{path.partition('.')[2]}'")
    if isinstance(found, (dict, list)) or found is None:
        raise Usage(f"'{path}' of the response is no plain value")
    return found


def _map(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
