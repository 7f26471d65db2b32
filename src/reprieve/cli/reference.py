"""Write docs/reference.md from the descriptions: `python -m reprieve.cli.reference > docs/reference.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from reprieve import errors
from reprieve.app.config import KEYS, Key
from reprieve.cli import catalog, manual
from reprieve.cli.spec import EVERYWHERE, Command, Option
from reprieve.errors import ReprieveError

INTRO = """\
# Reference

Made from the program itself by `python -m reprieve.cli.reference > docs/reference.md`; a test says when it is stale.

`reprieve [-C DIR] [--json] [-q] COMMAND …`. The workspace is found by walking up from the current directory, or from
DIR. A bare `reprieve` is `reprieve status` with what to do next.

REF is an id or a unique beginning of one, a label, `latest`, `~N` (N checkpoints before the latest), a time
(`2026-11-15T10:00`, `10m ago`), or `step:NAME` (just before that step; a run's step is named by its label). An
ambiguous REF is an error that lists the candidates.

A time means the newest entry made up to then. One that is written out is meant to the end of its last part: a date to
the end of that day, `10:00` to the end of that minute, and so the `created_at` of an entry means that entry. Without a
zone (`Z`, `+01:00`) it is local.
"""
JSON = """\
With `--json` standard output is exactly one object: `{"ok": true, "command": "rollback", …}`, or, with the matching
exit code, `{"ok": false, "command": …, "error": {"code": …, "message": …, "hints": […], …}}`. Fields may be added;
those here stay.

- checkpoint: `id`, `label`, `created_at` (ISO 8601, UTC), `actor`, `step`, `files`, `bytes`, `changed`, `gaps`
- entry of the log: the same and `kind`: checkpoint, rollback, undo, revert, redo, effect
- change: `path`, `change` (created, modified, deleted, mode, type), `actor`, `added`, `removed`, `binary`
- `show`: `entry`, `changes`, `effects`, and `changes_known`: false if what was there before the entry was pruned
- gap: `path`, `reason`
- plan: `id`, `target`, `actions` (each `kind`, `path` or `effect`, `verb`, `actor`, `reason`), `conflicts`, `kept`,
  `not_undone`
- report: `operation`, `restored`, `deleted`, `kept`, `conflicts`, `effects`, `not_undone`, `safety_checkpoint`, `redo`,
  `held_open` (gaps: what was taken back while a program has the old file open for writing)
- `unaccepted_settings`, in the answer of any command if there are some: what `reprieve.toml` asks for without effect
  until `config accept`; each `key`, `value`, `text`

Paths are relative to the root, with `/`. Bytes that are not UTF-8 stand as `\\udcXX`.
"""
ENVIRONMENT = (
    (
        "REPRIEVE_HOME",
        "The store; default: `~/.local/state/reprieve` on Linux, the platform's state directory elsewhere",
    ),
    ("REPRIEVE_CONFIG", "Your configuration file; default: `reprieve/config.toml` in the platform's config directory"),
    ("REPRIEVE_DISABLED", "`1` turns protection by hooks and by `gateway` off; `doctor` says so"),
    ("REPRIEVE_WORKSPACE", "The folder that `reprieve.http.install()` records for; default: the current one"),
    ("REPRIEVE_RECORD_HTTP", "`1` is set by `run --record-http`: Python programs below it record their HTTP calls"),
    (
        "REPRIEVE_CREDENTIAL_…",
        "The value of a header that an undo needs and that no variable held when the call was made; the undo names it",
    ),
    ("REPRIEVE_DEBUG", "`1` shows where an unexpected error happened"),
    ("REPRIEVE_NATIVE", "`0` uses the pure-Python twin of the native extension"),
    ("REPRIEVE_HELPER_IDLE", "Seconds after which the resident helper ends when nobody needs it; default: 600"),
    ("NO_COLOR, FORCE_COLOR, TERM", "Whether there is colour; `TERM=dumb` has none"),
    ("PAGER", "What shows long answers on a terminal; `cat` for none; default: `less`"),
)
ENDINGS = (
    (0, "done"),
    (1, "differences or warnings, where the command says so"),
    (70, "a bug in Reprieve; please report it"),
)
SIGNALS = ((129, "stopped by SIGHUP"), (143, "stopped by SIGTERM"))


def reference() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRO
    yield "## Everywhere\n"
    yield from _table(("option", "meaning"), [_option_row(option) for option in EVERYWHERE])
    for title, names in catalog.GROUPS:
        yield f"\n## {title}"
        for command in filter(None, map(catalog.find, names)):
            yield ""
            yield from _command(command)
    yield "\n## Exit codes\n"
    yield from _table(("code", "meaning"), [(str(code), text) for code, text in exit_codes()])
    yield "\n`run` passes on the exit code of its command.\n"
    yield "## JSON\n"
    yield JSON
    yield "## Settings\n"
    yield (
        "Your own file is `config.toml` (see `reprieve config path`). A workspace may have a `reprieve.toml`.\n"
        "Because an agent can edit that one, it does at once only what the third column says; what protects less\n"
        "waits until a person runs `reprieve config accept`. A mistake in it is a warning. A command's option\n"
        "outranks the variable, which outranks the files.\n"
    )
    yield from _table(("key", "default", "reprieve.toml may", "variable", "meaning"), [_key_row(key) for key in KEYS])
    yield "\nSizes are bytes, or `20MB` (millions) or `20MiB` (times 1,048,576).\n"
    yield "## Environment\n"
    yield from _table(("variable", "meaning"), [(f"`{name}`", text) for name, text in ENVIRONMENT])


def exit_codes() -> list[tuple[int, str]]:
    """All of them, from the tree of errors and what main adds."""
    found = dict((*ENDINGS, *SIGNALS))
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, ReprieveError) and error is not ReprieveError:
            summary = (error.__doc__ or "").partition(".")[0].partition(";")[0]
            found.setdefault(error.exit_code, f"`{error.code}`: {summary[:1].lower()}{summary[1:]}")
    return sorted(found.items())


def _command(command: Command) -> Iterator[str]:
    yield f"### {command.name}\n"
    yield f"{command.summary}.\n"
    yield f"    {manual.usage(command)}\n"
    if command.details:
        yield f"{command.details}\n"
    given = [*command.arguments, *((command.trailing,) if command.trailing else ())]
    rows = [(f"`{argument.name}`", manual.argument_text(argument)) for argument in given]
    rows += [_option_row(option) for option in command.options]
    if rows:
        yield from _table(("argument or option", "meaning"), rows)
        yield ""
    if command.exit_codes:
        yield "Exit codes: " + "; ".join(f"{code}, {text}" for code, text in command.exit_codes) + ".\n"
    for line, meaning in command.examples:
        yield f"- `{line}`: {meaning}"


def _option_row(option: Option) -> tuple[str, str]:
    name = f"`{option.name} {option.metavar}`" if option.metavar else f"`{option.name}`"
    return (f"`{option.short}`, {name}" if option.short else name), manual.option_text(option)


def _key_row(key: Key) -> tuple[str, ...]:
    default = {"()": "none", "False": "false"}.get(str(key.default), str(key.default))
    may = {
        "accept": "lower it once accepted" if key.kind == "size" else "add to it once accepted",
        "lower": "lower it; raise it once accepted",
        "raise": "raise it; lower it once accepted",
        "last": f"choose {key.choices[-1]}; others once accepted" if key.choices else "",
    }.get(key.workspace, "not set it")
    return f"`{key.name}`", default, may, f"`{key.variable}`" if key.variable else "", key.summary


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


if __name__ == "__main__":
    sys.stdout.write(reference())
