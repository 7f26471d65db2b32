"""Programs that talk to a server: HTTP clients and database clients, judged by what they are told to send. Pure."""

from __future__ import annotations

import posixpath
import re

from reprieve.policy.classes import READ, RESTORABLE, rank
from reprieve.policy.options import Parsed, parse, spec
from reprieve.policy.places import touch
from reprieve.policy.scene import HARMLESS, Judgement, Scene, gone, heaviest, opaque, writes
from reprieve.policy.words import Word, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_CURL = spec(
    "s S f L k v i I G g j l n N O J R a q # 0 1 2 3 4 6 Z silent show-error fail fail-with-body location insecure"
    " verbose"
    " include head get globoff no-buffer remote-name remote-header-name compressed http1.1 http2 http3 ipv4 ipv6"
    " progress-bar"
    " no-progress-meter location-trusted path-as-is remote-time create-dirs parallel anyauth basic digest ssl"
    " ssl-reqd tlsv1.2"
    " tlsv1.3 fail-early disable raw tcp-nodelay no-keepalive styled-output remote-name-all",
    "A b c C d D e F H m o r T u U w x X Y y z E user-agent cookie cookie-jar continue-at data data-raw data-binary"
    " data-urlencode data-ascii json dump-header referer form form-string header max-time output range upload-file user"
    " write-out proxy request connect-timeout retry retry-delay retry-max-time cacert cert key capath interface"
    " limit-rate"
    " max-redirs resolve connect-to url url-query output-dir oauth2-bearer proxy-user max-filesize speed-limit"
    " speed-time"
    " time-cond noproxy unix-socket aws-sigv4 ciphers proto trace trace-ascii stderr",
)  # fmt: skip
_BODY = ("-d", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--data-ascii", "--json", "-F", "--form",
         "--form-string")  # fmt: skip


def _all(
    words: Sequence[Word], known: object, name: str
) -> tuple[list[Word], list[tuple[str, Word | str | None]]] | None:
    from reprieve.policy.options import Spec

    assert isinstance(known, Spec)
    operands: list[Word] = []
    options: list[tuple[str, Word | str | None]] = []
    at = 1
    while at < len(words):
        parsed: Parsed | None = parse(words, known, start=at)
        if parsed is None:
            if words[at].text is None and words[at].is_quoted:
                operands.append(words[at])
                at += 1
                continue
            return None
        options += parsed.options
        if parsed.rest >= len(words):
            break
        operands.append(words[parsed.rest])
        at = parsed.rest + 1
    return operands, options


def _word(value: Word | str | None) -> Word:
    return plain(value) if isinstance(value, str) else value or Word(None)


def _last(options: Sequence[tuple[str, Word | str | None]], *names: str) -> Word | None:
    """The value that counts where an option is given more than once, under whichever of its names."""
    return next((_word(value) for name, value in reversed(options) if name in names), None)


def judge_curl(words: Sequence[Word], scene: Scene) -> Judgement:
    """By its method; a body means POST. What it saves is a file like any other."""
    read = _all(words, _CURL, "curl")
    if read is None:
        return opaque("an option of curl is not known")
    operands, options = read
    given = {name for name, _ in options}
    values = {name: _word(value) for name, value in options}
    files = [_word(v) for n, v in options if n in ("-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar",
                                                   "--trace", "--trace-ascii", "--stderr")]  # fmt: skip
    files = [word for word in files if word.text != "-"]
    if given & {"-O", "--remote-name", "--remote-name-all", "-J"}:
        files.append(_word(values.get("--output-dir", plain("."))))
    saved = writes(files, scene)
    printed = [_word(value).text or "" for name, value in options if name in ("-w", "--write-out")]
    if any("%output" in text or text.startswith("@") for text in printed):
        return opaque("curl prints into a file, or what a file says")
    method = _last(options, "-X", "--request")
    if method is not None and method.text is None:
        return gone("sends a request whose method only the running shell knows")
    name = (method.text or "" if method is not None else "").upper()
    if not name:
        if given & {"-T", "--upload-file"}:
            name = "PUT"
        elif given & set(_BODY) and not given & {"-G", "--get"}:
            name = "POST"
        else:
            name = "HEAD" if given & {"-I", "--head"} else "GET"
    urls = [*operands, *[_word(v) for n, v in options if n == "--url"]]
    return heaviest((saved, *[judge_request(name, url, scene) for url in urls]))


def judge_request(method: str, url: Word, scene: Scene) -> Judgement:
    """One HTTP request as a program was told to make it."""
    shown = url.text or (url.prefix + "…")
    if shown.lower().startswith(("file:", "scp:", "sftp:", "smtp:", "ftp:", "telnet:", "gopher:", "dict:", "ldap:")):
        if method in ("GET", "HEAD") and shown.lower().startswith("file:"):
            return HARMLESS
        return gone(f"talks to {shown.partition(':')[0]}")
    if method in ("GET", "HEAD", "OPTIONS"):
        return HARMLESS
    whole = shown if "://" in shown else f"http://{shown}"
    match = scene.catalog.match_http(method, whole) if url.text is not None else None
    if match is not None:
        return Judgement(match.rule.cls, f"{method} {whole}: {match.rule.note or match.rule.id}", match.rule.id)
    return gone(f"sends {method} to {shown}")


_WGET = spec(
    "q v nv c N S r k p m np nc 4 6 b quiet verbose no-verbose continue timestamping server-response recursive"
    " spider mirror"
    " no-check-certificate no-parent no-clobber convert-links page-requisites show-progress content-disposition",
    "O P o a t T w U i e output-document directory-prefix output-file append-output tries timeout wait user-agent"
    " header method"
    " body-data body-file post-data post-file limit-rate level accept reject user password referer",
)  # fmt: skip


def judge_wget(words: Sequence[Word], scene: Scene) -> Judgement:
    """It saves a file, unless that is standard output or it only looks."""
    spelled = {"-nv": "--no-verbose", "-np": "--no-parent", "-nc": "--no-clobber", "-qO-": "-O-"}
    fixed = [plain(spelled[word.text]) if word.text in spelled and word.text else word for word in words]
    read = _all(fixed, _WGET, "wget")
    if read is None:
        return opaque("an option of wget is not known")
    operands, options = read
    values = {name: _word(value) for name, value in options}
    if {"-e", "-i"} & set(values):
        return opaque("wget takes orders from elsewhere")
    method = values.get("--method")
    if values.keys() & {"--post-data", "--post-file", "--body-data", "--body-file"} and method is None:
        method = plain("POST")
    sent = [judge_request((method.text or "?").upper(), url, scene) for url in operands] if method is not None else []
    logs = [_word(v) for n, v in options if n in ("-o", "--output-file", "-a", "--append-output")]
    logged = writes([word for word in logs if word.text != "-"], scene)
    target = _last(options, "-O", "--output-document")
    if "--spider" in values or (target is not None and target.text == "-"):
        saved = HARMLESS
    else:
        saved = writes([target or _last(options, "-P", "--directory-prefix") or plain(".")], scene)
    return heaviest((*sent, logged, saved))


# -- databases

_PSQL = spec(
    "a A b e E H l n N q s S t x X 0 1 z w W echo-all no-align echo-queries expanded tuples-only quiet no-psqlrc"
    " single-transaction"
    " list csv html no-password password single-line",
    "c d f F h p P R T U v L o command dbname file field-separator host port pset record-separator table-attr"
    " username set"
    " variable log-file output",
)  # fmt: skip
_MYSQL = spec(
    "A b B C E f G H N q r s t v X batch silent table vertical skip-column-names compress force html xml verbose"
    " raw quick"
    " no-auto-rehash ssl skip-ssl",
    "D e h P S u p database execute host port socket user password protocol default-character-set ssl-mode ssl-ca",
)
_SQLITE = spec(
    "-bail -batch -box -column -csv -echo -header -noheader -html -interactive -json -line -list -markdown -quote"
    " -readonly"
    " -safe -stats -table -tabs -version -help --readonly --json --csv --header --batch --bail",
    "-cmd -init -separator -nullvalue -newline -mmap -lookaside -vfs -maxsize",
)
# whole words: `\\l` lists databases, `\\lo_unlink` deletes an object
_META_READS = re.compile(
    r"\\(?:d[a-zA-Z]*|l|list|lo_list|x|timing|pset|q|quit|conninfo|encoding|echo|a|t|z|h|help|\?|sf|sv|c|set)[S+]*(?:\s|$)"
)
# what psql does not look into for its own commands
_PSQL_QUOTED = re.compile(r"""--[^\n]*|'(?:[^']|'')*'|"[^"]*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$""", re.DOTALL)
_PSQL_ESCAPED = re.compile(r"""--[^\n]*|'(?:[^'\\]|''|\\.)*'|"[^"]*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$""", re.DOTALL)
_DOT_READS = (".tables", ".schema", ".headers", ".header", ".mode", ".indexes", ".indices", ".databases", ".dump",
".width",
              ".nullvalue", ".quit", ".exit", ".help", ".stats", ".timer", ".show", ".fullschema", ".separator",
              ".print", ".echo", ".eqp", ".explain", ".bail", ".changes", ".version")  # fmt: skip


def judge_sql_text(text: str | None, *, who: str, undo: str) -> Judgement:
    """The SQL that a client was given, with the client's own commands among it."""
    from reprieve.policy.sql import read_sql

    if text is None:
        return opaque(f"{who} runs SQL that only the running shell knows")
    kept: list[str] = []
    for line in text.splitlines() or [text]:
        bare = line.strip()
        if who == "psql" and bare.startswith("\\") and not _is_quiet_meta(bare):
            return opaque(f"psql runs {bare.split()[0]}")
        elif who == "sqlite3" and bare.startswith("."):
            if bare.split()[0] not in _DOT_READS or "|" in bare or ">" in bare:
                return opaque(f"sqlite3 runs {bare.split()[0]}")
        elif who == "psql" and bare.startswith("\\"):
            continue
        elif who == "mysql" and bare.startswith(("\\!", "system ", "source ", "\\.", "tee ", "pager ", "\\T", "\\P")):
            return opaque(f"mysql runs {bare.split()[0]}")
        else:
            kept.append(line)
    if who == "mysql" and "\\!" in text:
        return opaque("mysql runs a shell")
    sql = "\n".join(kept)
    if who == "psql" and any("\\" in quoted.sub("''", sql) for quoted in (_PSQL_QUOTED, _PSQL_ESCAPED)):
        return opaque("psql runs a command of its own inside the SQL")
    reading = read_sql(sql, undo=undo)
    return Judgement(reading.cls, f"{who}: {reading.reason}" if reading.reason else "")


def _is_quiet_meta(bare: str) -> bool:
    return _META_READS.match(bare) is not None and "|" not in bare and "`" not in bare and bare.count("\\") == 1


def judge_sql_client(name: str, words: Sequence[Word], scene: Scene) -> Judgement:
    """psql, mysql, mariadb, sqlite3: every text that they are given is read; a file or a prompt is not."""
    who = {"mariadb": "mysql", "sqlite": "sqlite3"}.get(name, name)
    known = {"psql": _PSQL, "mysql": _MYSQL, "sqlite3": _SQLITE}[who]
    words = [plain("-p") if who == "mysql" and (w.text or w.prefix).startswith("-p") else w for w in words]
    if who == "mysql":
        words = [word for word in words if word.text != "-p"]
    read = _all(words, known, who)
    if read is None:
        return opaque(f"an option of {who} is not known")
    operands, options = read
    values: list[tuple[str, Word]] = [(option, _word(value)) for option, value in options]
    if any(option in ("-l", "--list", "-version", "-help") for option, _ in values):
        return HARMLESS
    undo = "none"
    is_in_memory = who == "sqlite3" and [word.text for word in operands[:1]] in ([":memory:"], [])
    found: list[Judgement] = []
    texts: list[str | None] = []
    if who == "sqlite3":
        undo, found = _sqlite_place(operands[:1], scene)
        if any(option in ("-readonly", "--readonly") for option, _ in values):
            undo = "whole"
        texts += [word.text for word in operands[1:]]
        texts += [word.text for option, word in values if option == "-cmd"]
        if any(option in ("-init", "-vfs") for option, _ in values):
            return opaque("sqlite3 takes orders from a file")
    texts += [word.text for option, word in values if option in ("-c", "--command", "-e", "--execute")]
    for option, word in values:
        if option in ("-f", "--file"):
            return opaque(f"{who} runs a file that nobody read") if word.text != "-" else _from_input(who, undo, scene)
        if option in ("-o", "--output") and (word.text or word.prefix).startswith("|"):
            return opaque(f"{who} pipes what it finds into a program")
        if option in ("-o", "--output", "-L", "--log-file"):
            found.append(writes([word], scene))
        if option in ("-v", "--set", "--variable") and who == "psql":
            found.append(opaque("psql puts a variable into SQL"))
    if not texts:
        return _from_input(who, undo, scene)
    if scene.stdin.is_given and who == "sqlite3" and len(operands) < 2:
        found.append(_from_input(who, undo, scene))
    judged = heaviest((*found, *[judge_sql_text(text, who=who, undo=undo) for text in texts]))
    # a database in memory is gone with the program: whatever happened to it happened to nobody
    return HARMLESS if is_in_memory and judged.cls == RESTORABLE else judged


def _from_input(who: str, undo: str, scene: Scene) -> Judgement:
    if not scene.stdin.is_given:
        return opaque(f"{who} waits for SQL that nobody has read")
    return judge_sql_text(scene.stdin.text, who=who, undo=undo)


def _sqlite_place(operands: Sequence[Word], scene: Scene) -> tuple[str, list[Judgement]]:
    """A database in the workspace is a file that comes back; one in memory is nothing."""
    if not operands or operands[0].text in (":memory:", ""):
        return "whole", []
    if (operands[0].text or operands[0].prefix).startswith("file:"):
        return "none", []
    cls, _ = touch(operands[0], scene.places)
    return ("whole" if rank(cls) <= rank("restorable") else "none"), []


def judge_server(name: str, words: Sequence[Word], scene: Scene) -> Judgement | None:
    """One of these clients, or None."""
    if name == "curl":
        return judge_curl(words, scene)
    if name == "wget":
        return judge_wget(words, scene)
    if name in ("http", "https", "xh", "xhs"):
        return _httpie(words, scene)
    if name in ("psql", "mysql", "mariadb", "sqlite3", "sqlite"):
        return judge_sql_client(name, words, scene)
    if name in ("dropdb", "dropuser", "mysqladmin", "pg_restore", "createdb", "createuser", "pg_ctl", "initdb"):
        return gone(f"{name} changes a database server")
    if name == "pg_dump" or name == "mysqldump":
        files = [
            words[n + 1] for n, word in enumerate(words[:-1]) if word.text in ("-f", "--file", "-r", "--result-file")
        ]
        if any(
            (word.text or "").startswith(("--file=", "-f", "--result-file=")) and len(word.text or "") > 2
            for word in words
        ):
            return opaque(f"where {name} writes is not known")
        return writes(files, scene)
    return None


_HTTPIE = spec(
    "j f x v b h m S F I q json form multipart compress verbose body headers meta stream follow all check-status"
    " ignore-stdin offline quiet chunked path-as-is debug traceback unsorted sorted no-verify https",
    "p a A s P print auth auth-type timeout max-redirects max-headers verify cert cert-key cert-key-pass proxy style"
    " pretty format-options response-charset response-mime ssl ciphers default-scheme boundary raw history-print"
    " bearer",
)


def _httpie(words: Sequence[Word], scene: Scene) -> Judgement:
    """`http [METHOD] URL [ITEM …]`: the method may be any word, and is POST where there is a body."""
    if any((word.text or "").startswith(("-o", "--output", "-d", "--download", "--session")) for word in words[1:]):
        return opaque("where httpie writes is not known")
    read = _all(words, _HTTPIE, "http")
    if read is None:
        return opaque("an option of httpie is not known")
    operands, options = read
    if not operands:
        return opaque("what httpie sends is not known")
    given = {name for name, _ in options}
    first = operands[0].text
    if len(operands) > 1 and first is not None and first.isascii() and first.isalpha():
        return judge_request(first.upper(), operands[1], scene)
    if len(operands) > 1 and first is None and not operands[0].prefix:
        return gone("sends a request whose method only the running shell knows")
    has_body = (
        "--raw" in given
        or (scene.stdin.is_given and not given & {"-I", "--ignore-stdin"})
        or any(sign in (word.text or "=") for word in operands[1:] for sign in "=@")
    )
    return judge_request("POST" if has_body else "GET", operands[0], scene)


def base(program: str) -> str:
    """A program's name without its folder."""
    return posixpath.basename(program)


__all__ = ["READ", "base", "judge_request", "judge_server"]
