"""Read an MCP client's line as every server would. What two readers could read in two ways is Unclear."""

from __future__ import annotations

import json

from reprieve.effects.mcp_client import MOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

# names by which a server finds a call in a message; some readers do not mind capitals
_NAMES = ("jsonrpc", "id", "method", "params", "result", "error")
_CALL_NAMES = ("name", "arguments", "task", "_meta", "inputResponses", "requestState")
_WHOLE = 1 << 53  # numbers beyond are not the same for every reader


class Unclear(ValueError):
    """A line that two readers could read in two ways, or not at all."""


def read(line: bytes) -> Any:
    """The message in a client's line. Raises Unclear."""
    if len(line) > MOST:
        raise Unclear(f"a message of more than {MOST:,} bytes")
    if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
        raise Unclear("a carriage return inside of a message")  # some servers take it for the end of a line
    try:
        # not json's own guess of the encoding: a server reads UTF-8
        message = json.loads(line.decode(), object_pairs_hook=_once, parse_constant=_no_number)
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, dict):
                _spelled(each)
        return message
    except RecursionError as e:
        raise Unclear("it is nested too deep") from e
    except UnicodeDecodeError as e:
        raise Unclear("it is not UTF-8") from e


def _once(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unclear("a name is there twice")
    return found


def _spelled(message: Json) -> None:
    """Raises Unclear where a reader that does not mind capitals finds another message than we do."""
    _exactly(message, _NAMES)
    params = message.get("params")
    if message.get("method") == "tools/call" and isinstance(params, dict):
        _exactly(params, _CALL_NAMES)
        arguments = params.get("arguments")
        if isinstance(arguments, dict) and len({name.casefold() for name in arguments}) != len(arguments):
            raise Unclear("a name is there twice, but for capitals")


def _exactly(found: Json, names: tuple[str, ...]) -> None:
    folded = {name.casefold() for name in names}
    for name in found:
        if name not in names and name.casefold() in folded:
            raise Unclear(f"{name!a} is written with other letters than the protocol's")


def _no_number(name: str) -> Any:
    raise Unclear(f"{name} is no number")


def key_of(id: object) -> str:
    """1 and "1" are two ids; 1 and 1.0 are one."""
    return json.dumps(int(id) if isinstance(id, float) and id.is_integer() else id)


def is_id(id: object) -> bool:
    """Whether every reader takes it for the same."""
    if isinstance(id, str):
        return not any("\ud800" <= c <= "\udfff" for c in id)
    return isinstance(id, (int, float)) and not isinstance(id, bool) and abs(id) <= _WHOLE and id == int(id)
