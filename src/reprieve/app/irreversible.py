"""Choose which commands of a line are recorded as effects, and record those that Reprieve has no way to undo.

`commands` records what the catalog knows how to undo. Everything else that the gate takes for more than a change of
files is recorded here once it may run, so that a rollback reports it as not undone.
"""

from __future__ import annotations

import os

from reprieve.app import commands, effects, journals
from reprieve.app.commands import Watched
from reprieve.model.effect import IRREVERSIBLE, OPAQUE, EffectDraft
from reprieve.model.value import Value
from reprieve.policy.classes import SAFE
from reprieve.policy.gate import judge_call
from reprieve.policy.redact import redact, redact_beside, redact_values, redact_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace
    from reprieve.policy.catalog import Catalog
    from reprieve.policy.gate import Verdict
    from reprieve.policy.scene import SimpleCommand

_MOST = 500  # characters of a command in a description


class Command(Value):
    """One command of a line that is recorded when it runs."""

    cwd: str
    argv: tuple[str, ...]  # for the catalog; empty: it has no rule for this
    shown: tuple[str, ...] = ()  # for people and the journal, without secrets
    why: str = ""  # why it can't be undone, unless the catalog knows how; "": then it is no effect
    variables: tuple[tuple[str, str], ...] = ()  # that the line sets for it
    launcher: tuple[str, ...] = ()  # what stands before the program: sudo, env


def judge_line(ws: Workspace, text: str, *, cwd: str, rules: Catalog, tool: str = "shell") -> Verdict:
    """The gate's verdict on a command line, by the workspace's settings."""
    tracked = [os.fsdecode(annex.path(name)) for annex in ws.annexes for name in annex.names or (b"",)]
    return judge_call(
        tool,
        {"command": text},
        root=os.fsdecode(ws.root),
        cwd=cwd,
        mode=ws.config.policy_mode,
        catalog=rules,
        tracked=tracked,
        trusted_commands=ws.config.policy_trusted_commands,
    )


def to_record(verdict: Verdict, text: str, *, cwd: str, with_opaque: bool = False) -> tuple[Command, ...]:
    """The commands of a line that are effects. `with_opaque`: also those that the gate could not read."""
    found = [_command(one, text, cwd, with_opaque) for one in verdict.commands]
    chosen = [one for one in found if one.argv or one.why]
    if with_opaque and not any(one.why for one in chosen):  # nothing in the line could be read
        chosen.append(Command(cwd, (), (_clean(redact(text), text),), redact(verdict.reason)))
    return tuple(chosen)


def _command(one: SimpleCommand, text: str, cwd: str, with_opaque: bool) -> Command:
    cwd = one.cwd or cwd
    words = ["…" if word is None else word for word in one.argv]
    is_known = one.match is not None and None not in one.argv
    argv = tuple(words) if is_known else ()
    prefix = one.match.prefix if one.match is not None and argv else ()
    known = Command(cwd, argv, variables=one.variables, launcher=prefix[: prefix.index(argv[0])] if prefix else ())
    if one.cls in SAFE or (one.cls == OPAQUE and not with_opaque):
        return known
    shown = tuple(_clean(word, text) for word in redact_words(words)) or (_clean(redact(text), text),)
    why = redact_beside(one.reason, text, [one.argv]) or "Reprieve knows no way to undo it"
    return known.replace(shown=shown, why=why)


def _clean(shown: str, text: str) -> str:
    """Without the secrets that the line puts into variables."""
    return redact_values(shown, text)


def begin(
    ws: Workspace, command: Command, *, rules: Catalog, call: str = "", is_theirs: bool = False
) -> Watched | None:
    """Make the command's intent durable, with a way back if the catalog knows one. None if it is no effect."""
    if command.argv:
        watched = commands.begin(
            ws, command.argv, cwd=command.cwd, rules=rules, call=call, is_theirs=is_theirs,
            variables=dict(command.variables), launcher=command.launcher,
        )  # fmt: skip
        if watched is not None:
            return watched
    if not command.why:
        return None
    text = redact(" ".join(command.shown))[:_MOST]
    with effects.journal_of(ws, is_theirs=is_theirs) as journal:
        draft = EffectDraft(
            "command",
            IRREVERSIBLE,
            f"command:{text}",
            text,
            request={"argv": list(command.shown), "cwd": command.cwd, "captured": {}, "why_not": command.why},
            call=f"{call}/{text}" if call else "",
            fingerprint=f"command {command.cwd} {text}",
        )
        effect = journal.begin(draft, journals.place(ws), is_fork=True)
    return Watched(effect.id, command.shown)
