"""The catalog's rules for HTTP requests, as the recorder asks for them: the class of a call and what takes it back."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote

from reprieve.effects.rest import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.effects.calls import Call
    from reprieve.effects.rest import Rules
    from reprieve.model.effect import Json
    from reprieve.policy.catalog import Catalog, HttpMatch

_HOUR_NS = 3600 * 10**9
_UNITS = {"m": _HOUR_NS // 60, "h": _HOUR_NS, "d": 24 * _HOUR_NS}


def catalog_rules(catalog: Catalog | None = None) -> Rules:
    """A function that finds the rule of a call; default: the shipped catalog with the user's own rules before it."""
    if catalog is None:
        from reprieve.app.commands import catalog_of

        catalog = catalog_of()

    def find(call: Call) -> Rule | None:
        match = catalog.match_http(call.method, call.url)
        return _rule(match, call) if match is not None else None

    return find


def _rule(match: HttpMatch, call: Call) -> Rule:
    known = match.rule
    said: object = call.json
    if said is None and call.header("content-type").startswith("application/x-www-form-urlencoded"):
        said = dict(parse_qsl((call.body or b"").decode("utf-8", "replace"), keep_blank_values=True))

    def undo(response: object, before: object) -> Json:
        from reprieve.policy.catalog import instantiate_request

        made = instantiate_request(match, request=said, response=response, before=before)
        inverse: Json = {
            "method": made.method,
            "url": made.url,
            "is_idempotent": bool(made.idempotency) or made.method in ("PUT", "DELETE"),
            "is_gone_done": 404 in known.gone,
            "is_verified": False,
        }
        if made.form:
            inverse["form"] = dict(made.form)
        if made.json is not None:
            inverse["json"] = made.json
        return inverse

    return Rule(
        known.id,
        known.cls,
        is_keyed=known.idempotency == "Idempotency-Key",
        window_ns=_span(known.window),
        undo=undo if known.inverse is not None else None,
        before=_filled(match) if known.before else "",
        note=known.note,
        has_secrets=bool(known.redact),
    )


def _filled(match: HttpMatch) -> str:
    values = dict(match.captured)
    return match.origin + re.sub(
        r"\{path\.(\w+)\}", lambda hole: quote(values.get(hole[1], ""), safe=""), match.rule.before
    )


def _span(text: str) -> int:
    """Nanoseconds of "24h", 0 if it says nothing."""
    found = re.fullmatch(r"(\d+)([mhd])", text)
    return int(found[1]) * _UNITS[found[2]] if found else 0
