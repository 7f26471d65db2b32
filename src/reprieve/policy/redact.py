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

# The same for `_more`.
_MORE_TRIGGERS = (
    "pass=", "pass =", "pass:=", 'pass"', "pass'", "pw=", "pw =", "_key", "_pat=", "_pat:", "_pat ", '_pat"', "_pat'",
    "_auth", "_cred", "x-auth", "auth=", "auth =", "identified", "accountkey", "account_key", "account-key",
    "webhooks/", "webhookb2", "telegram.org/", "dckr_", "glrt-", "hvs.", "hvb.", "shpat_", "shpca_", "shppa_",
    "shpss_", "lin_api_", "ntn_", "gsk_", "xai-", "nvapi-", "whsec_", "tskey-", "rubygems_", "doo_v1_", "dor_v1_",
    "sntrys_", "sntryu_", "figd_", "pul-",
)  # fmt: skip

_ALL_TRIGGERS = (*_TRIGGERS, *_MORE_TRIGGERS)

_SENSITIVE_KEYS = (
    "password", "passwd", "passphrase", "secret", "token", "authorization", "cookie", "api_key", "apikey", "api-key",
    "private_key", "privatekey", "access_key", "accesskey", "credential",
)  # fmt: skip
# Names that mean a secret only as a whole, or as the last part of one.
_SENSITIVE_NAMES = ("pass", "pw", "passcode", "auth", "basic_auth", "basicauth", "proxy_auth", "bearer", "jwt")
_SENSITIVE_ENDS = ("_pass", "-pass", "_pwd", "_pw", "_pat")
# Fields by which a value is named beside it: {"name": "DB_PASSWORD", "value": …}.
_NAMES, _VALUES = ("name", "key", "variable", "var", "field", "header"), ("value", "val", "content", "data", "text")
# Names that contain a sensitive word and are about something else.
_HARMLESS_KEYS = ("max_tokens", "maxtokens", "tokens", "token_count", "tokencount", "max_output_tokens")

# Ends of options that say where a secret is, or what it is called.
_ABOUT = ("-file", "_file", "-path", "-dir", "-stdin", "-fd", "-env", "-name", "-id", "-type", "-helper", "-store")

_VALUE = r"""("[^"\r\n]{1,4096}"?|'[^'\r\n]{1,4096}'?|[^\s"'&;,)}\]]{1,4096})"""

_compiled: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = []


def redact(text: str) -> str:
    """The same text with secrets replaced by `***`."""
    if may_hold(text):
        text = hide_in_text(text, is_telling=is_sensitive)
    lowered = text.lower()
    for trigger in _ALL_TRIGGERS:  # a plain loop: six times for each call of an agent
        if trigger in lowered:
            break
    else:
        return text
    for pattern, replacement in _compiled or _compile():
        text = pattern.sub(replacement, text)
    return text


def redact_words(words: Sequence[str]) -> list[str]:
    """The same for an argument list, where an option and its value are words of their own."""
    shown = [redact(word) for word in hide_in_words(words, is_telling=is_sensitive)]
    for n in range(1, len(shown)):
        option, word = shown[n - 1], shown[n]
        if option[:1] == "-" and word[:1] != "-" and not option.endswith(_ABOUT):
            both = redact(f"{option} {word}")
            if both != f"{option} {word}" and both.startswith(f"{option} "):
                # of several words in one a pattern may have hidden the first alone
                shown[n] = both[len(option) + 1 :] if len(word.split()) == 1 else MASK
    return shown


def redact_beside(text: str, line: str, commands: Iterable[Sequence[str | None]]) -> str:
    """The same for a text about a line of a shell and the commands that were read in it.

    It may name a word that is a secret only where it stands in a command, or the value of a variable.
    """
    import re

    for argv in commands:
        words = [word or "" for word in argv]
        for word, shown in zip(words, redact_words(words), strict=True):
            if word != shown:
                text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", lambda _, shown=shown: shown, text)  # type: ignore[misc]
    return redact(redact_values(text, line))


def redact_values(text: str, line: str) -> str:
    """The text without the secrets that a line of a shell gives to variables, and only these."""
    import re

    for found in re.finditer(r"""\b[A-Za-z_]\w{0,64}=["']?([^\s"';&|$`/]{6,4096})""", line):
        # a plain word stays: it may be what a command does, and who reads this decides about it
        if any(c.isdigit() for c in found[1]) and redact(found[0]) != found[0]:
            text = text.replace(found[1], MASK)
    return text


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
    if name in _SENSITIVE_NAMES or name.endswith(_SENSITIVE_ENDS) or key.endswith(("Pass", "Pwd")):
        return True
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
            is_secret = is_sensitive(str(key)) or (key in _VALUES and _is_named_secret(value))
            is_secret = is_secret and inner not in (None, "", True, False)
            out[name] = MASK if is_secret else _shown(inner, limit, depth + 1)
        return out
    if isinstance(value, list | tuple):
        some = value[:_MAX_ITEMS]
        # it may be an argument list
        words = redact_words(some) if some and all(isinstance(inner, str) for inner in some) else some
        shown = [_shown(inner, limit, depth + 1) for inner in words]
        if len(value) > _MAX_ITEMS:
            shown.append(f"… {len(value) - _MAX_ITEMS} more")
        return shown
    return shorten(str(value), limit)


def _is_named_secret(value: dict[object, object]) -> bool:
    return any(isinstance(name := value.get(key), str) and is_sensitive(name) for key in _NAMES)


def _compile() -> list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]:
    import re

    def assigned(match: re.Match[str]) -> str:
        if match[3].startswith(f"{MASK}@") or not match[3].strip("\\"):
            return match[0]  # the user of a URL, whose host is no secret; or an escaped quote, which was seen to before
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
    _compiled[:] = [(re.compile(pattern), replacement) for pattern, replacement in (*_more(words, assigned), *rules)]
    return _compiled


def _more(
    words: str, assigned: Callable[[re.Match[str]], str]
) -> list[tuple[str, str | Callable[[re.Match[str]], str]]]:
    """Secrets by what stands before them: escaped JSON, SQL, XML, short names, webhooks, and prose."""
    quote = r"""(?:'\\''|'"'"'|\\{0,3}["'])"""
    return [
        # in a string inside of a string: \"password\": \"…\"
        (
            rf"""(?i){words}([A-Za-z0-9_-]{{0,32}}(?:\\{{1,3}}["'])?\s{{0,4}}(?::=|=>|=|:)\s{{0,4}}\\{{1,3}}["'])"""
            r"""([^"'\\\r\n]{1,4096})""",
            rf"\1\2{MASK}",
        ),
        (rf"((?<![A-Za-z])(?:pass|pw|PASS|PW)|_pwd|_PWD|[a-z]P(?:ass|wd|w))(\s{{0,1}}:?=>?\s{{0,2}}){_VALUE}",
         assigned),
        (rf"""(["'](?:[A-Za-z0-9]{{1,32}}[_-])?(?:pass|pwd|PASS|PWD))(["']\s{{0,4}}:\s{{0,4}}){_VALUE}""", assigned),
        (
            r"(?<![A-Za-z0-9_])([A-Z][A-Z0-9_]{0,64}_(?:KEY|PAT|AUTH|CREDS?))"
            rf"""(["']?\s{{0,4}}(?::=|=>|=|:)\s{{0,4}}){_VALUE}""",
            assigned,
        ),
        (rf"(?i)\b(account[_-]?key)([\"']?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}", assigned),
        (r"""(?i)\b(x-auth(?:-[a-z]{1,16})?)(\s{0,4}:\s{0,4})([^\r\n"']{1,4096})""", rf"\1\2{MASK}"),
        # PASSWORD 'x', IDENTIFIED BY 'x', SET PASSWORD FOR a = 'x', PASSWORD('x')
        (
            r"(?i)\b(password|identified\s{1,4}(?:with\s{1,4}[\w.]{1,64}\s{1,4})?(?:by|as))"
            rf"""(\s{{1,4}}(?:for\s{{1,4}}[^\s=]{{1,128}}\s{{0,4}}=\s{{0,4}})?{quote}|\s{{0,4}}\(\s{{0,4}}{quote})"""
            r"""([^'"\\\r\n]{1,512})""",
            rf"\1\2{MASK}",
        ),
        (r"(?i)(<[a-z0-9_:.-]{0,32}(?:password|passwd|secret|token|api-?key)[a-z0-9_-]{0,16}>)([^<\r\n]{1,4096})",
         rf"\1{MASK}"),
        (rf"""(?i)\b(auth\s{{0,2}}=\s{{0,2}}\(\s{{0,2}}{quote}[^"'\r\n]{{0,128}}{quote}\s{{0,2}},\s{{0,2}}{quote})"""
         r"""([^"'\\\r\n]{1,512})""", rf"\1{MASK}"),
        (r"(?i)\b(login\s{1,4}\S{1,128}\s{1,4}passw(?:or)?d\s{1,4})(\S{1,512})", rf"\1{MASK}"),
        # prose; a word with a digit that is no name of a method
        (
            r"(?i)\b(pass(?:word|wd|phrase)(?:\s{1,2}(?:is|was|of))?\s{1,2})"
            r"(?!sha-?\d|argon2|pbkdf2|oauth2|bcrypt|md5|base64|utf)"
            r"""(?=[^\s"'`]{0,64}\d)(?=[^\s"'`]{0,64}[A-Za-z])([^\s"'`,;]{6,512})""",
            rf"\1{MASK}",
        ),
        (r"(discord(?:app)?\.com/api/webhooks/\d{1,32}|webhook\.office\.com/webhookb2)/[A-Za-z0-9@/_-]{8,}",
         rf"\1/{MASK}"),
        (r"(telegram\.org/bot\d{6,12}):[A-Za-z0-9_-]{16,}", rf"\1:{MASK}"),
        (
            r"(?<![A-Za-z0-9_-])(?:"
            r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}|glrt-[A-Za-z0-9_-]{16,}|hv[sb]\.[A-Za-z0-9_-]{20,}"
            r"|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32,}|lin_api_[A-Za-z0-9]{30,}|ntn_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{30,}"
            r"|xai-[A-Za-z0-9]{30,}|nvapi-[A-Za-z0-9_-]{30,}|whsec_[A-Za-z0-9+/=]{20,}|tskey-[A-Za-z0-9-]{16,}"
            r"|rubygems_[a-f0-9]{32,}|do[or]_v1_[a-f0-9]{32,}|sntry[su]_[A-Za-z0-9+/=_-]{20,}|figd_[A-Za-z0-9_-]{20,}"
            r"|pul-[a-f0-9]{32,})",
            MASK,
        ),
    ]  # fmt: skip
