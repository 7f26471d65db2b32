"""How an agent's steps are called on the timeline: short, redacted, on one line."""

from __future__ import annotations

from reprieve.policy.redact import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.model.hookevent import HookEvent

_LINE = 100
_NOTE = 2000
_TELLING = (
    "command",
    "cmd",
    "file_path",
    "filePath",
    "path",
    "url",
    "query",
    "commands",
    "command_line",
    "description",
)

# Programs that reach beyond files. A test holds that every program of the catalog with such a rule is among them.
REACHING = frozenset((
    "push", "send-email", "gh", "hub", "docker", "podman", "kubectl", "helm", "terraform", "tofu", "aws", "gcloud",
    "gsutil", "bq", "az", "npm", "pnpm", "yarn", "pip", "uv", "twine", "cargo", "gem", "apt", "apt-get", "poetry",
    "dpkg", "brew",
    "systemctl", "service", "crontab", "psql", "mysql", "mariadb", "mongo", "redis-cli", "sqlite3", "curl", "wget",
    "http", "mail", "mutt", "msmtp", "sendmail", "ssh", "scp", "rsync", "rclone", "s3cmd", "vercel", "netlify",
    "heroku", "fly", "flyctl", "ansible", "pulumi", "dropdb", "createdb", "pg_restore", "at", "batch", "reboot",
    "shutdown", "mkfs", "dd",
))  # fmt: skip
_BETWEEN = str.maketrans(dict.fromkeys(";&|<>()`$\"'\\/={},:\n\t", " "))


def reaches_out(command: str) -> bool:
    """Whether a command line names a program that reaches beyond files; a look for words, which costs microseconds."""
    return not REACHING.isdisjoint(command.translate(_BETWEEN).split())


def title(text: str) -> str:
    """The first line of a text that is on no line too long, without control characters; redacted before it is cut."""
    line = next((line for line in shorten(text, _NOTE).splitlines() if line.strip()), "").strip()
    line = "".join(c if c.isprintable() else " " for c in line)
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"


def describe(event: HookEvent, *, is_whole: bool = False) -> str:
    """A call in words: the tool and what tells most about it. Only of what was redacted by the reader."""
    arguments = event.arguments or {}
    tool = event.tool or "a tool without a name"
    if is_whole:
        from reprieve.model.quickjson import dumps

        try:
            return f"{tool} {dumps(arguments)}"
        except (ValueError, RecursionError):
            return tool
    for key in _TELLING:
        value = arguments.get(key)
        if isinstance(value, list):
            value = " ".join(part for part in value if isinstance(part, str))
        if isinstance(value, str) and value.strip():
            return f"{tool}: {value.strip()}"
    return tool


def note_for(text: str, *, event: HookEvent | None = None, outside: tuple[str, ...] = ()) -> str:
    """What a person may want to know later: the prompt, or the call with its class and what lies outside."""
    lines = [shorten(text, _NOTE)] if text else []
    if event is not None:
        lines.append(f"class: {class_of(event)}")
    if outside:
        lines.append("not protected, because outside of every workspace: " + ", ".join(outside[:20]))
    return "\n".join(lines)


def class_of(event: HookEvent) -> str:
    """What is known about taking a call back, from the kind of tool alone."""
    if event.is_read_only:
        return "read"
    return "restorable" if event.paths and event.command is None else "opaque"
