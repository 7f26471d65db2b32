"""Which words of a command are secrets because of the program that takes them: `mysql -pX`, `docker login -p X`.

Pure; a part of `redact`, for what no pattern of a text tells: `-p` is a password here and a port there. A line is read
roughly as a shell would, in one pass; it need not be one, since prompts and files are looked at too. A variable is no
secret (`-p "$PASSWORD"`).
"""

from __future__ import annotations

import posixpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence

    Row = tuple[tuple[str, ...], tuple[str, ...]]  # the words that have to be there, and what is a secret then

MASK = "***"
_MAX_DEPTH = 4  # of command lines inside of quotes
_MAX_WORDS = 500  # of one command

# Programs │ words that have to be there too (a|b: one of them; -b: among clustered letters) │ what is a secret:
#   -p      the word after this option, or the rest of the same one     -p.  the word after it alone     -p+  the rest
#   -u:     in such a value, what comes after the first `:` (% = alike); all if nothing does; nothing if there is none
#   -u:!    also at the end of clustered letters (-su)       -p^  the first of them: later ones are another program's
#   @last   the last operand      @first/  what comes after the / in the first one     @pairs  the values of NAME=VALUE
#   @key    the two after an operand with a telling name     @after:login  the operand after this one (@after2: two)
#   @begins:pass:  the rest of a word that begins so                    @stdin  what echo or <<< gives it
_TABLE = """
mysql mysqldump mysqladmin mysqlimport mysqlshow mysqlcheck mysqlslap mysqlsh mariadb mariadb-dump mariadb-admin ││ -p+
mysqladmin mariadb-admin nmcli │ password │ @after:password
redis-cli valkey-cli keydb-cli ││ -a. --pass @after2:auth @after:requirepass @after:masterauth
mycli mongo mongosh mongodump mongorestore mongoimport mongoexport cqlsh ││ -p
sqlcmd bcp tsql mosquitto_pub mosquitto_sub ipmitool zip unzip ││ -P
sqlplus ││ @first/
ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami ││ -w
smbclient rpcclient ││ -U%
docker podman nerdctl buildah skopeo helm oras crane oc cf az ibmcloud │ login │ -p
docker podman nerdctl buildah skopeo helm oras crane npm │ login --password-stdin │ @stdin
podman skopeo buildah ││ --creds: --src-creds: --dest-creds:
az ││ --account-key --connection-string
az │ keyvault secret set │ --value
aws │ put-parameter │ --value
kubectl oc │ secret │ --from-literal=
gh │ secret set │ -b --body @stdin
gh glab │ login --with-token|--stdin │ @stdin
glab │ login │ -t
gcloud │ secrets --data-file=-|--data-file │ @stdin
wrangler secret-tool pass vercel │ put|store|insert|env │ @stdin
fly flyctl supabase heroku │ set|import|config:set │ @pairs
fly flyctl vercel doctl ││ -t
netlify ││ --auth
pulumi │ set --secret │ @last
vault bao │ put|write|patch │ @pairs
vault bao cargo wandb │ login|unseal │ @after:login @after:unseal
bw │ login|unlock │ @after2:login @after:unlock
snyk ││ @after:auth
ngrok ││ @after:authtoken @after:add-authtoken
mc │ alias set │ @last
npm pnpm yarn poetry pip pip3 composer │ config|set │ @key
aws │ configure │ @key
twine poetry uv │ upload|publish │ -p
uv │ publish │ -t
dotnet nuget │ push │ -k. -ApiKey.
curl ││ -b=! --cookie= -u:! -U:! --user: --proxy-user: -E: --cert: --pass --proxy-pass
http https xh xhs ││ -a: --auth:
htpasswd │ -b │ @last
openssl ││ -k. -K. -hmac. @begins:pass:
openssl │ passwd │ @last
keytool jarsigner ││ -storepass. -keypass. -new. -srcstorepass. -deststorepass. -srckeypass. -destkeypass.
ssh-keygen ││ -N -P
7z 7za 7zz rar unrar ││ -p+ -hp+
tailscale ││ --authkey --auth-key
useradd usermod ││ -p
security ││ -w -p
rabbitmqctl │ add_user|change_password │ @last
wpa_passphrase ││ @last
swaks sendemail ││ -ap. -xp.
xfreerdp ││ @begins:/p:
sshpass ││ -p^
sudo │ -S │ @stdin
passwd │ --stdin │ @stdin
gpg gpg2 │ --passphrase-fd │ @stdin
chpasswd kinit smbpasswd ││ @stdin
"""
_rows: dict[str, list[Row]] = {}
_patterns: list[re.Pattern[str]] = []

_BETWEEN = str.maketrans(dict.fromkeys(";&|<>()`\"'\\/{},\n\t", " "))


def may_hold(text: str) -> bool:
    """Whether a text names a program of the table, with the words and signs that have to be there; a quick look."""
    known = _rows or _read_table()
    there = set(text.translate(_BETWEEN).split())
    return any(
        all(need[0] == "-" or not there.isdisjoint(need.split("|")) for need in needs)
        and any(_may_be_in(text, secret) for secret in secrets)
        for name in known.keys() & there
        for needs, secrets in known[name]
    )


def _may_be_in(text: str, secret: str) -> bool:
    if secret[0] == "-":
        # the last of clustered letters is before a blank
        return secret.rstrip(".+:%=!^") in text or (secret[-1] == "!" and f"{secret[1]} " in text)
    return secret != "@stdin" or "|" in text or "<<<" in text


def hide_in_text(text: str, *, is_telling: Callable[[str], bool]) -> str:
    """The same text without them. `is_telling`: whether something of this name is a secret."""
    return _Text(text, is_telling).hidden(0)


def hide_in_words(words: Sequence[str], *, is_telling: Callable[[str], bool]) -> list[str]:
    """The same argument list without them."""
    found = _secrets(words, is_telling)
    return [word if n not in found else word[: found[n]] + MASK for n, word in enumerate(words)]


class _Command:
    """The words of one command, as they are in the text and as the program gets them."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.words: list[str] = []
        self.given: list[tuple[int, int]] = []  # here-strings


class _Text:
    def __init__(self, text: str, is_telling: Callable[[str], bool]) -> None:
        self.text, self.is_telling = text, is_telling
        self.edits: list[tuple[int, int, str]] = []

    def hidden(self, depth: int) -> str:
        token, quoted = _patterns or _compile()
        outer: list[_Command] = []
        command, before, target = _Command(), None, ""
        for found in token.finditer(self.text):
            sign = found["sign"]
            if sign == "\n" and not command.words:
                continue  # a pipe goes on in the next line
            if sign is None:
                if target == "<<<":
                    command.given.append(found.span())
                elif not target:
                    command.spans.append(found.span())
                    command.words.append(_plain(found[0]))
                target = ""
                if depth < _MAX_DEPTH:
                    self._inside(found, quoted, depth)
            elif (aimed := sign.lstrip("0123456789"))[0] in "<>":
                target = aimed
            elif sign == "(":
                outer.append(command)
                command, before, target = _Command(), None, ""
            else:
                self._end(command, before)
                before = command if sign == "|" else None
                command = outer.pop() if sign == ")" and outer else _Command()
                target = ""
        for one in (*reversed(outer), command):
            self._end(one, before if one is command else None)
        return self._edited()

    def _inside(self, found: re.Match[str], quoted: re.Pattern[str], depth: int) -> None:
        """A line may be in quotes: for another shell, or in JSON."""
        for part in quoted.finditer(found[0]):
            inner = part[0][1:-1]
            if part[0][0] != "\\" and may_hold(inner):
                shown = _Text(inner, self.is_telling).hidden(depth + 1)
                if shown != inner:
                    start = found.start() + part.start() + 1
                    self.edits.append((start, start + len(inner), shown))

    def _end(self, command: _Command, before: _Command | None) -> None:
        secrets = _secrets(command.words, self.is_telling)
        for n, at in secrets.items():
            if n == _STDIN:
                self._hide_given(command, before)
                continue
            start, end = command.spans[n]
            raw, visible = self.text[start:end], command.words[n][:at]
            if is_variable(raw[len(visible) :]):
                continue
            quote = raw[0] if raw[0] in "\"'" else ""
            if not raw[len(quote) :].startswith(visible):
                visible = ""
            closing = quote if quote and len(raw) > 1 and raw[-1] == quote else ""
            self.edits.append((start, end, f"{quote}{visible}{MASK}{closing}"))

    def _hide_given(self, command: _Command, before: _Command | None) -> None:
        spans = list(command.given)
        if before is not None and before.words and posixpath.basename(before.words[0]) in ("echo", "printf"):
            spans += [span for span, word in zip(before.spans[1:], before.words[1:], strict=True) if word[:1] != "-"]
        for start, end in spans:
            if not is_variable(self.text[start:end]):
                self.edits.append((start, end, MASK))

    def _edited(self) -> str:
        parts, at = [], 0
        for start, end, shown in sorted(self.edits, key=lambda edit: (edit[0], -edit[1])):
            if start >= at:  # else inside of what is hidden whole
                parts += [self.text[at:start], shown]
                at = end
        return "".join((*parts, self.text[at:]))


def is_variable(raw: str) -> bool:
    """Whether a word of a shell is nothing but the value of a variable or of a command."""
    inner = raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] == '"' else raw
    if inner[:1] != "$":
        return inner[:1] == "`"
    name = inner[2:-1] if inner[1:2] == "{" and inner.endswith("}") else inner[1:]
    is_command = inner[1:2] == "(" and "echo" not in inner and "printf" not in inner
    return name.isidentifier() or is_command or inner == "$"


_STDIN = -1


def _secrets(words: Sequence[str], is_telling: Callable[[str], bool]) -> Mapping[int, int]:
    """Number of a word → where its secret begins; -1 is there if what it reads is one."""
    known = _rows or _read_table()
    found: dict[int, int] = {}
    after: dict[str, int] = {}  # each program's words end where it is named again: no text is read twice for it
    for n in range(len(words) - 1, -1, -1):
        name = posixpath.basename(words[n])
        if name not in known:
            continue
        rest = words[n + 1 : min(after.get(name, len(words)), n + _MAX_WORDS)]
        after[name] = n
        for needs, secrets in known[name]:
            if all(_is_there(need, rest) for need in needs):
                for secret in secrets:
                    for at, start in _find(secret, rest, is_telling):
                        number = _STDIN if at == _STDIN else n + 1 + at
                        found[number] = min(start, found.get(number, start))
    return found


def _is_there(need: str, words: Sequence[str]) -> bool:
    if need[0] == "-" and len(need) == 2:
        return any(word[:1] == "-" and word[:2] != "--" and need[1] in word for word in words)
    return any(one in words for one in need.split("|"))


def _find(secret: str, words: Sequence[str], is_telling: Callable[[str], bool]) -> list[tuple[int, int]]:
    if secret[0] == "-":
        return _option(secret, words)
    operands = [n for n, word in enumerate(words) if word[:1] != "-"]
    kind, _, what = secret.partition(":")
    if kind == "@stdin":
        return [(_STDIN, 0)]
    if kind == "@last":
        return [(operands[-1], 0)] if len(operands) > 1 else []
    if kind == "@begins":
        return [(n, len(what)) for n, word in enumerate(words) if word.startswith(what)]
    if kind == "@pairs":
        return [(n, words[n].index("=") + 1) for n in operands if "=" in words[n]]
    if kind == "@first/":
        return [(n, words[n].index("/") + 1) for n in operands[:1] if words[n].find("/") > 0]
    if kind in ("@after", "@after2"):
        after = next((n for n in operands if words[n].lower() == what), len(words))
        return [(n, 0) for n in operands if n > after][: 2 if kind == "@after2" else 1]
    # @key
    for n in operands:
        name, equals, _ = words[n].partition("=")
        if is_telling(name) or name.endswith("_auth") or name.startswith("http-basic"):
            return [(n, len(name) + 1)] if equals else [(later, 0) for later in operands if later > n][:2]
    return []


def _option(secret: str, words: Sequence[str]) -> list[tuple[int, int]]:
    may_cluster, secret = secret[-1] == "!", secret.rstrip("!")
    option, how = (secret[:-1], secret[-1]) if secret[-1] in ".+:%=^" else (secret, "")
    found: list[tuple[int, int]] = []
    for n, word in enumerate(words):
        if not word.startswith("-"):
            continue
        is_cluster = may_cluster and word[1:].isalpha() and word[-1] == option[1]
        if (word == option or is_cluster) and how != "+":
            if n + 1 < len(words) and words[n + 1][:1] not in ("-", ""):
                found.append((n + 1, 0))
        elif option[:2] == "--" and word.startswith(option + "="):
            found.append((n, len(option) + 1))
        elif option[:2] != "--" and how != "." and word.startswith(option) and len(word) > len(option):
            found.append((n, len(option)))
    if how in ("", ".", "+", "^"):
        return found[:1] if how == "^" else found
    return [(n, _beyond(words[n], start, how)) for n, start in found if how in words[n][start:]]


def _beyond(word: str, start: int, sign: str) -> int:
    """Where the part after the sign begins; `start` if there is none after it."""
    after = word.index(sign, start) + 1
    return after if after < len(word) else start


def _plain(raw: str) -> str:
    """A word without its quotes, roughly."""
    if '"' not in raw and "'" not in raw and "\\" not in raw:
        return raw
    return raw.replace('"', "").replace("'", "").replace("\\", "")


def _read_table() -> dict[str, list[Row]]:
    for line in _TABLE.strip().splitlines():
        programs, needs, secrets = line.split("│")
        for program in programs.split():
            _rows.setdefault(program, []).append((tuple(needs.split()), tuple(secrets.split())))
    return _rows


def _compile() -> list[re.Pattern[str]]:
    import re

    _patterns[:] = [
        re.compile(
            # every branch of a word begins with another character, so that nothing is ever tried twice
            r"""(?P<sign>\d?(?:<<<|<<-?|>>|[<>]&?)|\|\|?|&&?|;+|\n|[()`])"""
            r"""|(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\[^\n]|[^\s"'\\;|&()<>`]|["'])+""",
            re.DOTALL,
        ),
        re.compile(r"""\\.|"(?:[^"\\]|\\.)*"|'[^']*'""", re.DOTALL),
    ]
    return _patterns
