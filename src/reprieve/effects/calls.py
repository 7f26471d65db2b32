"""An HTTP request that is about to leave, and what can be read off it alone: does it only look, and at what. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit, urlunsplit

from reprieve.effects.wire import Answer, origin
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MOST_KEPT = 256 * 1024  # bytes of a body that are looked into and kept; larger ones are passed on and not kept
_LOOKS = ("GET", "HEAD", "OPTIONS", "TRACE")

# POSTs that are questions; the last words of a path
_ASKS = re.compile(
    r"/(_search|_msearch|_count|_mget|_validate/query|search|lookup|git-upload-pack|introspect|oauth2?/token|connect/token"
    r"|batchGet|countTokens|embeddings)$|:(search|batchGet|runQuery|countTokens|generateContent|streamGenerateContent"
    r"|embedContent)$"
)
# a model that is asked is no effect, and its prompts are none of our business
_MODELS = re.compile(
    r"^https://(api\.openai\.com|api\.anthropic\.com|generativelanguage\.googleapis\.com|api\.mistral\.ai"
    r"|api\.cohere\.com|api\.groq\.com|openrouter\.ai|api\.deepseek\.com|api\.together\.xyz)(:443)?/(\S*/)?"
    r"(chat/completions|completions|responses|messages|messages/count_tokens|chat|generate|rerank|moderations)$"
)
_ID = re.compile(
    r"^(\d+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-f]{12,}|[A-Za-z]{1,12}_[A-Za-z0-9]{4,}|[A-Za-z]{2}[0-9a-f]{32})$"
)
# what others see or pay for: taking the record away does not take that back
_OUTWARD = re.compile(
    r"(^|[^a-z])(charge|payment|payment_intent|payout|transfer|refund|purchase|order|invoice|checkout|message|mail|email"
    r"|sms|call|fax|tweet|invite|invitation|notification|webhook|hook|publish|publication|release|deploy|deployment|send"
    r"|dispatch|trigger|execute|run|reboot|restart|shutdown|merge|transaction|withdrawal|trade)e?s?$",
    re.IGNORECASE,
)
_VOLATILE_KEY = re.compile(
    r"(^|_)(nonce|timestamp|time|ts|date|request_?id|idempotency_?key|client_?token|trace_?id|at)$", re.IGNORECASE
)
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_WHEN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[0-9:.,]*(Z|[+-]\d\d:?\d\d)?")


class Call(Value):
    """One request as it is sent."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = b""  # None: it is streamed or large, and was not looked into

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    @property
    def place(self) -> str:
        """The URL without its query: the resource."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))

    @property
    def segments(self) -> list[str]:
        return _segments(self.url)

    @property
    def last(self) -> str:
        return last_of(self.url)

    @property
    def origin(self) -> str:
        return origin(self.url)

    @property
    def json(self) -> object:
        return read_json(self.body) if self.body else None


class Question(Value):
    """A request that only looks, to be sent by the caller's own client."""

    url: str


def read_json(data: bytes | None) -> object:
    """What it says, None if it is no JSON."""
    from json import loads

    try:
        return loads(data or b"")
    except ValueError:
        return None


def json_of(answer: Answer | None) -> object:
    """The JSON of a whole answer."""
    return read_json(answer.body) if answer is not None and not answer.detail else None


def is_look(call: Call) -> bool:
    """Whether it changes nothing, as far as the request itself tells."""
    if call.method in _LOOKS:
        return call.header("upgrade") == ""
    if call.method in ("PROPFIND", "REPORT", "SEARCH"):
        return True
    if call.method != "POST":
        return False
    path = urlsplit(call.url).path
    if _MODELS.match(call.place) or _ASKS.search(path):
        return True
    operation = graphql(call)
    if operation is not None:
        return operation[0] == "query"
    rpc = call.json
    if isinstance(rpc, dict) and rpc.get("jsonrpc") == "2.0" and isinstance(rpc.get("method"), str):
        return bool(re.search(r"(^|[._/])(get|list|find|describe|read|search|count|ping)$", rpc["method"]))
    return False


def graphql(call: Call) -> tuple[str, tuple[str, ...]] | None:
    """(query or mutation, names of the fields asked for) if it speaks GraphQL; of several, the worst."""
    if not call.last.lower().startswith("graphql"):
        return None
    said = call.json
    asked = said if isinstance(said, list) else [said]
    kind, fields = "query", []
    for one in asked:
        text = one.get("query") if isinstance(one, dict) else None
        if not isinstance(text, str):
            return "mutation", ()  # a stored query or something unread: unknown counts as a change
        text = re.sub(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|#[^\n]*', '""', text)
        if re.search(r"(^|[\s},])(mutation|subscription)\b", text):
            kind = "mutation"
            found = re.search(r"\bmutation\b[^{]*\{(.*)", text, re.DOTALL)
            fields += _top_fields(found[1]) if found else []
    return kind, tuple(fields)


def _top_fields(text: str) -> list[str]:
    """Names at the first level of a selection."""
    depth, found = 0, []
    for match in re.finditer(r"[{}()]|[A-Za-z_]\w*(\s*:\s*[A-Za-z_]\w*)?", text):
        word = match[0]
        if word in "{(":
            depth += 1
        elif word in "})":
            depth -= 1
            if depth < 0:
                break
        elif depth == 0:
            found.append(word.rpartition(":")[2].strip())
    return found


def is_outward(call: Call) -> bool:
    """Whether people or money outside are concerned, by the name of it."""
    words = [part for part in call.segments if not _ID.match(part)]
    return bool(words) and bool(_OUTWARD.search(words[-1]) or _OUTWARD.search(words[-1].rpartition(".")[2]))


def looks_like_id(segment: str) -> bool:
    return bool(_ID.match(segment))


def looks_like_collection(segment: str) -> bool:
    """Plural by its looks. What does not look so is asked."""
    return segment.isascii() and segment.replace("-", "").replace("_", "").isalpha() and segment.lower().endswith("s")


def is_listing(found: object) -> bool:
    """Whether an answer lists members rather than being one thing."""
    if isinstance(found, list):
        return True
    names = ("items", "data", "results", "value", "entries", "records", "_embedded", "members")
    return (
        isinstance(found, dict)
        and any(isinstance(found.get(name), (list, dict)) for name in names)
        and "id" not in found
    )


def last_of(url: str) -> str:
    """The last word of a URL's path: the id of a thing."""
    return (_segments(url) or [""])[-1]


def _segments(url: str) -> list[str]:
    return [unquote(part) for part in urlsplit(url).path.split("/") if part]


def parent(url: str) -> str:
    """The URL one segment up, without query: the collection that a thing is in."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/").rpartition("/")[0], "", ""))


def needs(call: Call) -> tuple[str, ...]:
    """The nearest thing that it stands in: /items/1/comments needs /items/1."""
    at = parent(call.place) if not looks_like_id(call.last) else parent(parent(call.place))
    return (at,) if at and looks_like_id(urlsplit(at).path.rpartition("/")[2]) else ()


def fingerprint(call: Call, sign: Callable[[bytes], str]) -> str:
    """The same for the same wish, with what changes at every try left out: times, nonces, fresh ids."""
    from json import dumps

    said = call.json
    if said is not None:
        body = dumps(_steady(said), sort_keys=True)
    else:
        text = (call.body or b"").decode("utf-8", "replace")
        body = _WHEN.sub("<time>", _UUID.sub("<id>", text)) if call.body is not None else "<stream>"
    parts = urlsplit(call.url)
    query = _WHEN.sub("<time>", _UUID.sub("<id>", parts.query))
    return sign("\0".join((call.method, call.place, query, body)).encode())


def _steady(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): _steady(v) for k, v in value.items() if not _VOLATILE_KEY.search(str(k))}
    if isinstance(value, list):
        return [_steady(item) for item in value]
    if isinstance(value, str):
        return _WHEN.sub("<time>", _UUID.sub("<id>", value))
    return value
