"""What an inverse would keep of a secret: the timeline holds references to credentials, never credentials."""

from __future__ import annotations

from reprieve.effects.credentials import fingerprints, is_reference, is_right
from reprieve.errors import Refused
from reprieve.policy.redact import is_sensitive, redact, redact_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reprieve.model.effect import Json

_HARMLESS = (None, "", True, False)


def secret_in(inverse: Json) -> str:
    """Where an HTTP request that undoes holds a secret in the open, "" if nowhere."""
    make, check = _map(inverse.get("make")), _map(inverse.get("check"))
    for url in (str(each.get("url") or "") for each in (inverse, make, check)):
        if redact_url(url) != url:
            return "its URL"
    for name, value in _map(inverse.get("headers")).items():
        text = str(value)
        if not is_reference(text) and (is_right(name) or redact(f"{name}: {text}") != f"{name}: {text}"):
            return f"the header '{name}'"
    for body in (inverse.get("json"), inverse.get("form"), make.get("json"), check.get("json")):
        for where, value, is_telling in _leaves(body):
            if is_reference(str(value)):
                continue
            if (is_telling and value not in _HARMLESS) or (isinstance(value, str) and redact(value) != value):
                return f"the field '{where}'"
    text = str(inverse.get("text") or "")
    return "its text" if redact(text) != text else ""


def with_references(inverse: Json, sign: Callable[[bytes], str]) -> Json:
    """The same with the credentials named that its body refers to: they are put in when it is sent.

    Raises Refused for a secret in the open.
    """
    if where := secret_in(inverse):
        raise Refused(
            f"the request that reverses seems to hold a secret in {where}, which the journal does not keep",
            hints=["name where it is instead: env:VARIABLE or keyring:SERVICE/USER as the value of a header or field"],
        )
    found = {
        str(value): str(value)
        for body in (inverse.get("json"), inverse.get("form"))
        for _, value, is_telling in _leaves(body)
        if is_telling and is_reference(str(value))
    }
    if not found:
        return inverse
    prints = {**_map(inverse.get("fingerprints")), **fingerprints(found, sign)}
    return {**inverse, "references": list(found), **({"fingerprints": prints} if prints else {})}


def must_hold_no_secret(statements: Sequence[tuple[str, Sequence[object], int]]) -> None:
    """Raises Refused for SQL with a secret among its values."""
    from reprieve.policy.sql_secrets import secret_column

    for sql, values, _ in statements:
        if column := secret_column(sql, values):
            raise Refused(
                f"the statement that reverses seems to hold a secret (of '{column}'), which the journal does not keep",
                hints=["name where it is: {'credential': 'env:VARIABLE'} as the value, and ? or %s in the statement"],
            )


def _leaves(value: object, where: str = "", *, is_telling: bool = False) -> Iterator[tuple[str, object, bool]]:
    """(place, value, whether the name of it or of what it is in tells of a secret)."""
    if isinstance(value, dict):
        for key, inner in value.items():
            name = f"{where}.{key}" if where else str(key)
            yield from _leaves(inner, name, is_telling=is_telling or is_sensitive(str(key)))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, where, is_telling=is_telling)
    else:
        yield where, value, is_telling


def _map(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
