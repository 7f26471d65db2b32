"""JSON for the hot path without the `json` package, which pulls in `re`: 9 ms before every tool call, measured.

The same C scanner that `json.loads` uses, called directly. Where an interpreter has none, `json` itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BLANK = " \t\n\r"


class _Context:
    """What the scanner asks of a decoder."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str]

    def __init__(self) -> None:
        self.memo = {}


def loads(text: str) -> object:
    """A JSON value. Raises ValueError or RecursionError."""
    try:
        from _json import make_scanner
    except ImportError:
        import json

        return json.loads(text)
    scan: Callable[[str, int], tuple[object, int]] = make_scanner(_Context())  # type: ignore[arg-type]
    start = len(text) - len(text.lstrip(_BLANK))
    try:
        value, end = scan(text, start)
    except StopIteration as stop:
        raise ValueError(f"no value at character {stop.value}") from None
    except SystemError:  # Python 3.11 finds its own exception only where `json` is loaded
        raise ValueError("it is cut off or malformed") from None
    if text[end:].strip(_BLANK):
        raise ValueError(f"something follows the end at character {end}")
    return value


def dumps(value: object, *, sort_keys: bool = False, is_compact: bool = False) -> str:
    """JSON text in ASCII; compact: without blanks. Raises RecursionError, ValueError for a number too long for text."""
    try:
        from _json import encode_basestring_ascii as quote
    except ImportError:
        import json

        return json.dumps(value, sort_keys=sort_keys, separators=(",", ":") if is_compact else None)
    parts: list[str] = []
    _put(value, parts, quote, sort_keys, ("," if is_compact else ", ", ":" if is_compact else ": "))
    return "".join(parts)


def _put(
    value: object, parts: list[str], quote: Callable[[str], str], sort_keys: bool, between: tuple[str, str]
) -> None:
    if isinstance(value, str):
        parts.append(quote(value))
    elif value is None or isinstance(value, bool):
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int | float):
        parts.append(repr(value))
    elif isinstance(value, dict):
        gap = "{"
        for key in sorted(value) if sort_keys else value:
            parts.append(f"{gap}{quote(key)}{between[1]}")
            _put(value[key], parts, quote, sort_keys, between)
            gap = between[0]
        parts.append("{}" if gap == "{" else "}")
    elif isinstance(value, list | tuple):
        gap = "["
        for inner in value:
            parts.append(gap)
            _put(inner, parts, quote, sort_keys, between)
            gap = between[0]
        parts.append("[]" if gap == "[" else "]")
    else:
        raise ValueError(f"{type(value).__name__} is not a JSON value")
