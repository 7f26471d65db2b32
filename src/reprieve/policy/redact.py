"""Take secrets out of text that people will read: arguments, prompts, commands on the timeline.

Pure. Errs on the side of hiding. Every pattern has bounded repeats or a single greedy class, so that no input makes
it slow; the patterns are compiled only when a cheap look at the text finds a reason to, because this runs
before every tool call.
"""

from __future__ import annotations

from reprieve.policy.secret_words import MASK as MASK
from reprieve.policy.secret_words import hide_in_text, hide_in_words, may_hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Sequence


# Longest text that is looked at. What is shown is far shorter (`LIMIT`), and the tail that the cut may have split
# (half a token has no recognisable form) is dropped.
_WINDOW = 64 * 1024
_SPLIT = 4096
LIMIT = 2000
_MAX_ITEMS = 64
_MAX_DEPTH = 6

# Lower case; if none occurs, nothing below can match.
_TRIGGERS = (
    "authorization", "cookie", "api-key", "api_key", "apikey", "auth-token", "password", "passwd", "passphrase",
    "pwd", "secret", "token", "credential", "access_key", "accesskey", "access-key", "private", "://",
    "akia", "asia", "agpa", "aida", "aroa", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-",
    "sk_live", "sk_test", "rk_live", "rk_test", "xox", "xapp-", "aiza", "ya29.", "npm_", "pypi-", "hf_", "eyj", "sg.",
    "dop_v1_", "slack.com/services", "sig=", "signature=", "key=", "auth=", "jwt=",
    "bearer", "basic ", "-u", "--user", "sshpass", "age-secret",
)  # fmt: skip

_SENSITIVE_KEYS = (
    "password", "passwd", "passphrase", "secret", "token", "authorization", "cookie", "api_key", "apikey", "api-key",
    "private_key", "privatekey", "access_key", "accesskey", "credential",
)  # fmt: skip
# Names that contain a sensitive word and are about something else.
_HARMLESS_KEYS = ("max_tokens", "maxtokens", "tokens", "token_count", "tokencount", "max_output_tokens")

_VALUE = r"""("[^"\r\n]{1,4096}"?|'[^'\r\n]{1,4096}'?|[^\s"'&;,)}\]]{1,4096})"""

_compiled: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = []


def redact(text: str) -> str:
    """The same text with secrets replaced by `***`."""
    if may_hold(text):
        text = hide_in_text(text, is_telling=is_sensitive)
    lowered = text.lower()
    if not any(trigger in lowered for trigger in _TRIGGERS):
        return text
    for pattern, replacement in _compiled or _compile():
        text = pattern.sub(replacement, text)
    return text


def redact_words(words: Sequence[str]) -> list[str]:
    """The same for an argument list, where an option and its value are words of their own."""
    shown = [redact(word) for word in hide_in_words(words, is_telling=is_sensitive)]
    for n in range(1, len(shown)):
        option, word = shown[n - 1], shown[n]
        if option[:1] == "-" and word[:1] != "-":
            both = redact(f"{option} {word}")
            if both != f"{option} {word}" and both.startswith(f"{option} "):
                # of several words in one a pattern may have hidden the first alone
                shown[n] = both[len(option) + 1 :] if len(word.split()) == 1 else MASK
    return shown


def redact_beside(text: str, commands: Iterable[Sequence[str | None]]) -> str:
    """The same for a text about commands: it may name a word that is a secret only where it stands in one of them."""
    import re

    for argv in commands:
        words = [word or "" for word in argv]
        for word, shown in zip(words, redact_words(words), strict=True):
            if word != shown:
                text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", lambda _, shown=shown: shown, text)  # type: ignore[misc]
    return redact(text)


def redact_url(url: str) -> str:
    """A URL without secrets, nor the name of who asks: many servers take a token in its place."""
    text = redact(url)
    scheme, slashes, rest = text.partition("://")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    who, at, _ = rest[:end].rpartition("@")
    return f"{scheme}{slashes}{MASK}@{rest[len(who) + 1 :]}" if at and ":" not in who else text


def for_people(value: object, *, limit: int = LIMIT) -> object:
    """A JSON value made fit for the timeline: redacted, shortened, not too deep."""
    return _shown(value, limit, 0)


def shorten(text: str, limit: int = LIMIT) -> str:
    """Redacted and at most `limit` characters, with the number of those left out."""
    window = text if len(text) <= _WINDOW else text[: _WINDOW - _SPLIT]
    clean = redact(window)
    if len(clean) <= limit and len(window) == len(text):
        return clean
    kept = clean[:limit]
    return f"{kept}… ({len(text) - min(len(kept), len(text)):,} more characters)"


def is_sensitive(key: str) -> bool:
    """True if a field of this name holds a secret, whatever it looks like."""
    name = key.lower()
    if name in _HARMLESS_KEYS:
        return False
    return any(word in name for word in _SENSITIVE_KEYS)


def _shown(value: object, limit: int, depth: int) -> object:
    if isinstance(value, str):
        return shorten(value, limit)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        # Numbers that JSON, or the reader of it, can't hold are shown as words. (NaN is in no range.)
        return value if -(2**63) <= value < 2**64 else "not a number" if value != value else "a huge number"
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        out: dict[str, object] = {}
        for n, (key, inner) in enumerate(value.items()):
            if n == _MAX_ITEMS:
                out["…"] = f"{len(value) - n} more"
                break
            name = shorten(str(key), 200)
            is_secret = is_sensitive(str(key)) and inner not in (None, "", True, False)
            out[name] = MASK if is_secret else _shown(inner, limit, depth + 1)
        return out
    if isinstance(value, list | tuple):
        shown = [_shown(inner, limit, depth + 1) for inner in value[:_MAX_ITEMS]]
        if len(value) > _MAX_ITEMS:
            shown.append(f"… {len(value) - _MAX_ITEMS} more")
        return shown
    return shorten(str(value), limit)


def _compile() -> list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]:
    import re

    def assigned(match: re.Match[str]) -> str:
        if match[3].startswith(f"{MASK}@"):
            return match[0]  # the user of a URL, whose host is no secret
        quote = match[3][0] if match[3][0] in "\"'" else ""
        closing = quote if len(match[3]) > 1 and match[3].endswith(quote) else ""
        return f"{match[1]}{match[2]}{quote}{MASK}{closing}"

    words = (
        r"(pass(?:word|wd|phrase)|\bpwd|secret|token(?!s\b|iz|_count|s_)|api[_-]?key|access[_-]?key|private[_-]?key"
        r"|credentials?)"
    )
    rules: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
        # A key that was cut off has no END line: hide to the end then.
        (
            r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            f"-----PRIVATE KEY {MASK}-----",
        ),
        (
            r"(?i)(?<!/)\b((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]{0,24}(?:key|token|secret))"
            r"""(["']?\s{0,4}[:=]\s{0,4}["']?)([^\r\n"']{1,8192})""",
            rf"\1\2{MASK}",
        ),
        (r"(?i)\b(bearer|basic)(\s{1,4})([A-Za-z0-9+/=_.~-]{6,})", rf"\1\2{MASK}"),
        (r"""(://[^\s/@:"'\\]{0,256}:)([^\s/"'\\]{1,512})(@)""", rf"\1{MASK}\3"),
        # a token in the place of a user, longer than names are
        (
            r"""(?i)(\bhttps?://)(?:[^\s/@:"'\\]{24,512}|(?=[^\s/@:"'\\]{0,512}\d)[^\s/@:"'\\]{12,512})(@)""",
            rf"\1{MASK}\2",
        ),
        # signed URLs, and keys in a query
        (r"""(?i)([?&](?:[a-z0-9_.-]{0,32}[-_.])?(?:sig|signature|auth|jwt)=)([^\s&"'#]{1,4096})""", rf"\1{MASK}"),
        (
            r"""(?i)([?&](?:[a-z0-9_.-]{0,32}[-_.])?key=)(?=[a-z_~-]{0,64}\d)[a-z0-9_~-]{12,4096}(?=[\s&"'#]|$)""",
            rf"\1{MASK}",
        ),
        (rf"(?i){words}([A-Za-z0-9_-]{{0,32}}[\"']?\s{{0,4}}(?::=|=>|=|:)\s{{0,4}}){_VALUE}", assigned),
        (rf"(?i)(--?[a-z-]{{0,24}}{words}[a-z-]{{0,16}})(\s{{1,4}})(?!-){_VALUE}", rf"\1\3{MASK}"),
        (r"""(?<!\S)(-u|--user|--proxy-user)([\s=]{0,2}["']?[^\s:"']{1,128}:)(?!\d+(?:\s|$))([^\s"']{1,512})""",
         rf"\1\2{MASK}"),
        (r"""\b(sshpass\s{1,4}-p)(\s{0,4})([^\s]{1,512})""", rf"\1\2{MASK}"),
        (r"(slack\.com/services)/[A-Za-z0-9/_-]{8,}", rf"\1/{MASK}"),
        (
            r"(?<![A-Za-z0-9_-])(?:"
            r"(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{12,}"
            r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}"
            r"|sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"
            r"|xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}"
            r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}"
            r"|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{32,}"
            r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]{30,}"
            r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.?[A-Za-z0-9_-]*"
            r")",
            MASK,
        ),
    ]  # fmt: skip
    _compiled[:] = [(re.compile(pattern), replacement) for pattern, replacement in rules]
    return _compiled
