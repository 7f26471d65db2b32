"""Settings: what keys there are, and what they amount to for one workspace.

    flag  >  environment  >  user's config.toml, tightened by the workspace's reprieve.toml  >  default

The user's file is trusted; a mistake in it is an error. reprieve.toml lies in the tree, where an agent can edit it:
what it tightens holds at once, what it weakens only after a person accepted it (`weaker`), and a mistake in it is a
problem that the caller reports, because a broken file in the tree must not stand in the way of the rollback that
repairs it.
"""

from __future__ import annotations

import os

from reprieve.app import places
from reprieve.app.weaker import Weaker, settle
from reprieve.errors import Misconfigured
from reprieve.model import change
from reprieve.model.value import Value

WORKSPACE_FILE = change.WORKSPACE_FILE.decode()
_LARGEST_FILE = 1 << 20  # a settings file is a page or two; an agent could plant one without end


class Key(Value):
    """One setting. The table in docs/reference.md is made from these."""

    name: str
    kind: str  # patterns, size, bool, count, choice, text, reference (to a credential)
    default: object
    # What reprieve.toml may do at once: lower it, raise it, choose a later one (last). The other direction needs a
    # person's acceptance; "accept": every value does; "": only the user's own file sets it
    workspace: str
    variable: str  # environment variable that overrides it, "" if none
    summary: str
    choices: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


KEYS = (
    Key(
        "exclude",
        "patterns",
        (),
        "accept",
        "",
        "Patterns in gitignore syntax of what is not protected; each match is named as a gap and never touched",
    ),
    Key(
        "max_file_size",
        "size",
        0,
        "accept",
        "REPRIEVE_MAX_FILE_SIZE",
        'Larger files are not captured and named as gaps; bytes or a form such as "2GB"; 0 means no limit',
    ),
    Key(
        "cross_mounts",
        "bool",
        False,
        "",
        "REPRIEVE_CROSS_MOUNTS",
        "Also protect other file systems that are mounted inside the tree",
    ),
    Key(
        "retention.keep_last",
        "count",
        50,
        "raise",
        "REPRIEVE_RETENTION_KEEP_LAST",
        "`prune` keeps this many of the newest checkpoints, whatever their age",
    ),
    Key(
        "retention.keep_days",
        "count",
        30,
        "raise",
        "REPRIEVE_RETENTION_KEEP_DAYS",
        "`prune` keeps every checkpoint that is younger than this many days",
    ),
    Key(
        "retention.max_bytes",
        "size",
        0,
        "",
        "REPRIEVE_RETENTION_MAX_BYTES",
        "`prune` gives up the oldest unpinned checkpoints until the store is no larger than this; 0 means no limit",
    ),
    Key(
        "hook.on_failure",
        "choice",
        "deny",
        "",
        "REPRIEVE_HOOK_ON_FAILURE",
        "What a coding agent's hook answers when no checkpoint could be taken before a step: deny, ask or allow",
        ("deny", "ask", "allow"),
    ),
    Key(
        "hook.budget_s",
        "count",
        30,
        "",
        "REPRIEVE_HOOK_BUDGET_S",
        "Seconds that a coding agent's hook may take, at most 55; over it, hook.on_failure decides; 0 means 55",
    ),
    Key(
        "policy.mode",
        "choice",
        "assist",
        "last",
        "",
        "What happens to an effect that can't be taken back: assist asks a person, autopilot holds or refuses it",
        ("assist", "autopilot"),
    ),
    Key(
        "plan.on_failure",
        "choice",
        "rollback",
        "",
        "REPRIEVE_PLAN_ON_FAILURE",
        "What becomes of a step of a plan (Python) that fails: rollback, keep, or ask, where no answer is rollback",
        ("rollback", "keep", "ask"),
    ),
    Key(
        "policy.trusted_commands",
        "patterns",
        (),
        "",
        "",
        "Commands, or their first words, that autopilot lets run although nobody can read what they do: pytest, make",
    ),
    Key(
        "policy.trusted_servers",
        "patterns",
        (),
        "",
        "",
        "MCP servers behind `gateway`, by URL or by their command or its first words, whose word about their own tools"
        " counts where no rule does",
    ),
    Key(
        "policy.approve_undo",
        "choice",
        "doubtful",
        "last",
        "",
        "Inverses that need an approval besides --yes: doubtful (an agent's, and it starts other programs) or always",
        ("doubtful", "always"),
    ),
    Key(
        "mail.backend",
        "choice",
        "smtp",
        "",
        "",
        "What held mail is sent by: smtp, imap (drafts there, sent by smtp), gmail or graph (drafts at the provider)",
        ("smtp", "imap", "gmail", "graph"),
    ),
    Key(
        "mail.from",
        "text",
        "",
        "",
        "",
        "Who held mail comes from if nobody is named",
    ),
    Key(
        "mail.smtp_host",
        "text",
        "",
        "",
        "",
        "The mail server that held mail is handed to when it is released",
    ),
    Key(
        "mail.smtp_port",
        "count",
        0,
        "",
        "",
        "Its port; 0: the usual one (587, 465 or 25)",
    ),
    Key(
        "mail.smtp_security",
        "choice",
        "starttls",
        "",
        "",
        "How the connection to it is encrypted; none only without a password, or on this machine",
        ("starttls", "tls", "none"),
    ),
    Key(
        "mail.smtp_user",
        "text",
        "",
        "",
        "",
        "The name to log in with; none: no login",
    ),
    Key(
        "mail.smtp_password",
        "reference",
        "",
        "",
        "",
        "Where its password is: env:VARIABLE or keyring:SERVICE/USER, never the password",
    ),
    Key(
        "mail.imap_host",
        "text",
        "",
        "",
        "",
        "The IMAP server in whose mailbox drafts of held mail are kept",
    ),
    Key(
        "mail.imap_port",
        "count",
        0,
        "",
        "",
        "Its port; 0: the usual one (993 or 143)",
    ),
    Key(
        "mail.imap_security",
        "choice",
        "tls",
        "",
        "",
        "How the connection to it is encrypted; none only on this machine",
        ("tls", "starttls", "none"),
    ),
    Key(
        "mail.imap_user",
        "text",
        "",
        "",
        "",
        "The name to log in with there",
    ),
    Key(
        "mail.imap_password",
        "reference",
        "",
        "",
        "",
        "Where its password is: env:VARIABLE or keyring:SERVICE/USER",
    ),
    Key(
        "mail.imap_drafts",
        "text",
        "Drafts",
        "",
        "",
        "The folder for drafts there",
    ),
    Key(
        "mail.gmail_url",
        "text",
        "https://gmail.googleapis.com/gmail/v1",
        "",
        "",
        "Gmail's address",
    ),
    Key(
        "mail.gmail_token",
        "reference",
        "",
        "",
        "",
        "Where an access token for Gmail is: env:VARIABLE or keyring:SERVICE/USER",
    ),
    Key(
        "mail.graph_url",
        "text",
        "https://graph.microsoft.com/v1.0",
        "",
        "",
        "Microsoft Graph's address",
    ),
    Key(
        "mail.graph_token",
        "reference",
        "",
        "",
        "",
        "Where an access token for Microsoft Graph is: env:VARIABLE or keyring:SERVICE/USER",
    ),
    Key(
        "budget.requests_per_host",
        "count",
        0,
        "lower",
        "",
        "HTTP calls with an effect that one run may send to one host; 0 means no limit",
    ),
    Key("budget.deletions", "count", 0, "lower", "", "HTTP DELETE calls that one run may send; 0 means no limit"),
    Key(
        "budget.messages",
        "count",
        0,
        "lower",
        "",
        "Messages that one run may send or have held; 0 means no limit",
    ),
    Key(
        "budget.recipients",
        "count",
        0,
        "lower",
        "",
        "Recipients of mail that one run may address; 0 means no limit",
    ),
    Key(
        "budget.money",
        "count",
        0,
        "lower",
        "",
        "Money that one run may spend, in the units that rules count it in; 0 means no limit",
    ),
    Key(
        "helper",
        "bool",
        True,
        "",
        "REPRIEVE_HELPER",
        "Keep a process with Python loaded for ten minutes after a command, so that the next one is answered sooner",
    ),
    Key(
        "helper_watch",
        "bool",
        True,
        "",
        "REPRIEVE_HELPER_WATCH",
        "Let that process follow the tree with inotify, so that a checkpoint looks only at what may have changed",
    ),
)
_VARIABLES = tuple(key for key in KEYS if key.variable)


class Config(Value):
    """The settings that hold for a workspace."""

    exclude: tuple[str, ...] = ()
    max_file_size: int = 0
    cross_mounts: bool = False
    retention_keep_last: int = 50
    retention_keep_days: int = 30
    retention_max_bytes: int = 0
    hook_on_failure: str = "deny"
    hook_budget_s: int = 30
    policy_mode: str = "assist"
    policy_trusted_commands: tuple[str, ...] = ()
    policy_trusted_servers: tuple[str, ...] = ()
    policy_approve_undo: str = "doubtful"
    plan_on_failure: str = "rollback"
    mail_backend: str = "smtp"
    mail_from: str = ""
    mail_smtp_host: str = ""
    mail_smtp_port: int = 0
    mail_smtp_security: str = "starttls"
    mail_smtp_user: str = ""
    mail_smtp_password: str = ""
    mail_imap_host: str = ""
    mail_imap_port: int = 0
    mail_imap_security: str = "tls"
    mail_imap_user: str = ""
    mail_imap_password: str = ""
    mail_imap_drafts: str = "Drafts"
    mail_gmail_url: str = "https://gmail.googleapis.com/gmail/v1"
    mail_gmail_token: str = ""
    mail_graph_url: str = "https://graph.microsoft.com/v1.0"
    mail_graph_token: str = ""
    budget_requests_per_host: int = 0
    budget_deletions: int = 0
    budget_messages: int = 0
    budget_recipients: int = 0
    budget_money: int = 0
    helper: bool = True
    helper_watch: bool = True
    origins: tuple[tuple[str, str], ...] = ()  # key name, where its value comes from; absent: default
    problems: tuple[str, ...] = ()  # what is wrong with the workspace's file; what it says there is ignored
    weaker: tuple[Weaker, ...] = ()  # what that file asks for and nobody accepted; it has no effect
    accepted: tuple[tuple[str, object], ...] = ()  # of what somebody accepted: what the file still asks for

    def value(self, name: str) -> object:
        """The value of a key by its name."""
        return getattr(self, find_key(name).attribute)

    def origin(self, name: str) -> str:
        """Where a key's value comes from: a file, a variable, or "default"."""
        return dict(self.origins).get(name, "default")


def load(root: bytes | None = None, kept: str = "") -> Config:
    """The settings for the workspace at root (None: the user's alone). Raises Misconfigured.

    `kept`: the settings of the workspace's record, with what a person accepted.
    """
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    path = places.user_config()
    text = _read(path)
    for name, value in _parse(text, path).items() if text else ():
        key = find_key(name, path)
        values[key.attribute] = convert(key, value, path)
        origins[name] = path
    more: dict[str, tuple[object, ...]] = {}
    if root is not None:
        accepted = accepted_in(kept)
        more = _with_workspace(root, values, origins, accepted)
        more.setdefault("accepted", tuple(accepted.items()))  # a broken file withdraws nothing
    for key in _VARIABLES:
        given = os.environ.get(key.variable, "")
        if given:
            values[key.attribute] = convert(key, given, key.variable)
            origins[key.name] = key.variable
    if not origins and not any(more.values()):
        return Config()
    return Config().replace(**values, origins=tuple(origins.items()), **more)


def _with_workspace(
    root: bytes, values: dict[str, object], origins: dict[str, str], accepted: dict[str, object]
) -> dict[str, tuple[object, ...]]:
    """Add what reprieve.toml may say to `values` and `origins`; the rest of a Config, as far as it is not empty."""
    path = os.path.join(os.fsdecode(root), WORKSPACE_FILE)
    try:
        text = _read(path, follow=False)
        settings = _parse(text, WORKSPACE_FILE) if text else {}
    except Misconfigured as error:
        return {"problems": (error.message,)}
    problems: list[str] = []
    weaker: list[Weaker] = []
    held: list[tuple[str, object]] = []
    for name, raw in settings.items():
        try:
            key = find_key(name, WORKSPACE_FILE)
            value = convert(key, raw, WORKSPACE_FILE)
        except Misconfigured as error:
            problems.append(" ".join((error.message + ";", *error.hints)) if error.hints else error.message)
            continue
        if not key.workspace:
            problems.append(f"{WORKSPACE_FILE}: '{name}' can be set only in the user's configuration")
            continue
        own = values.get(key.attribute, key.default)
        settled = settle(key, own, value, accepted.get(name))
        if settled.value != own:
            values[key.attribute] = settled.value
            origins[name] = f"{origins[name]}, {path}" if name in origins else path
        if settled.accepted is not None:
            held.append((name, settled.accepted))
        if settled.weaker is not None:
            weaker.append(settled.weaker)
    return {"problems": tuple(problems), "weaker": tuple(weaker), "accepted": tuple(held)}


def accepted_in(kept: str) -> dict[str, object]:
    """What a person accepted, by the names of keys. What can't be read was not accepted."""
    if '"accepted":' not in kept:
        return {}
    import json

    found: dict[str, object] = {}
    for name, value in json.loads(kept)["accepted"].items():
        try:
            found[name] = convert(find_key(name), value, name)
        except Misconfigured:
            continue  # a setting that is no longer there, or has another type now
    return found


def find_key(name: str, where: str = "") -> Key:
    """The key of that name. Raises Misconfigured with the nearest name."""
    for key in KEYS:
        if key.name == name:
            return key
    import difflib

    near = difflib.get_close_matches(name, [key.name for key in KEYS], n=1)
    hints = [f"did you mean '{near[0]}'?"] if near else ["the settings are listed by: reprieve config"]
    raise Misconfigured(f"{where + ': ' if where else ''}there is no setting '{name}'", hints=hints)


def convert(key: Key, value: object, where: str) -> object:
    """The value in the key's own type; text is read as on a command line. Raises Misconfigured."""
    if key.kind == "patterns":
        if isinstance(value, str):
            value = [value]
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) and "\0" not in item for item in value):
            return tuple(value)
    elif key.kind == "choice":
        if value in key.choices:
            return value
    elif key.kind == "text":
        if isinstance(value, str) and value.isprintable():
            return value
    elif key.kind == "reference":
        from reprieve.effects.credentials import is_reference

        if isinstance(value, str) and (not value or is_reference(value)):
            return value
        raise Misconfigured(  # without the value: it may be the secret itself
            f"{where}: '{key.name}' must say where the secret is, and must not be it",
            hints=["env:VARIABLE or keyring:SERVICE/USER"],
        )
    elif key.kind == "bool":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            return value.lower() in ("1", "true", "yes", "on")
    elif isinstance(value, str):
        number = parse_size(value) if key.kind == "size" else int(value) if _is_digits(value) else None
        if number is not None:
            return number
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    wanted = {
        "patterns": "a list of patterns",
        "bool": "true or false",
        "size": 'a size such as 1500000 or "2GB"',
        "count": "a whole number, 0 or more",
        "text": "text in one line",
        "choice": f"one of {', '.join(key.choices)}",
    }[key.kind]
    raise Misconfigured(f"{where}: '{key.name}' must be {wanted}, not {value!r}")


def parse_size(text: str) -> int | None:
    """Bytes of "1500", "20 MB" (millions) or "20MiB" (2^20); None if it is not a size."""
    text = text.strip().lower().removesuffix("b")
    scale, base = 1, 1000
    if text.endswith("i"):
        text, base = text[:-1], 1024
    if text and text[-1] in "kmgt":
        scale = base ** ("kmgt".index(text[-1]) + 1)
        text = text[:-1]
    elif base == 1024:
        return None
    whole, _, fraction = text.strip().partition(".")
    if not _is_digits(whole) or (fraction and not _is_digits(fraction)):
        return None
    return int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _read(path: str, *, follow: bool = True) -> bytes:
    """The file's bytes, b"" if there is none. Never waits for a pipe, never follows a link that an agent made."""
    import stat

    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        fd = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise Misconfigured(f"cannot read '{path}': {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_FILE:
            raise Misconfigured(f"'{path}' is not a settings file: not a regular file, or larger than 1 MiB")
        return os.read(fd, _LARGEST_FILE)
    finally:
        os.close(fd)


def _parse(text: bytes, where: str) -> dict[str, object]:
    import tomllib

    try:
        document = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Misconfigured(f"{where}: not valid TOML: {error}") from error
    tables = {key.name.partition(".")[0] for key in KEYS if "." in key.name}
    flat: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, dict) and name in tables:
            flat.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            flat[name] = value
    return flat
