"""The gate in a coding agent's hook: what can't be taken back is asked about or refused; known effects are recorded.

    before a shell call   read its text ─▶ run │ ask │ refuse; an approval of exactly this text lets it pass once
                          run: what the catalog knows is captured and its intent written
    after it              the outcome, with the inverse

In assist only text that names a program which reaches out is read: all else costs a look for words. In autopilot every
command is read, and what can't be read is refused like what can't be taken back.
"""

from __future__ import annotations

import os

from reprieve.errors import Refused, ReprieveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace
    from reprieve.model.hookevent import HookEvent

AUTOPILOT = "autopilot"


class Stopped(Refused):
    """The call must not run now: ask the person, or refuse it."""

    def __init__(self, decision: str, message: str) -> None:
        super().__init__(message)
        self.decision = decision  # ask or deny, as in a hook's answer


def look(ws: Workspace, event: HookEvent) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The commands (folder, arguments) of a call whose effects are to be recorded. Raises Stopped."""
    text, mode = event.command or "", ws.config.policy_mode
    from reprieve.app.commands import catalog_of
    from reprieve.policy.classes import OPAQUE
    from reprieve.policy.decide import RUN
    from reprieve.policy.gate import judge_call

    root, cwd = os.fsdecode(ws.root), event.cwd or os.fsdecode(ws.root)
    rules = catalog_of()
    verdict = judge_call(
        event.tool or "shell",
        {"command": text},
        root=root,
        cwd=cwd,
        mode=mode,
        catalog=rules,
        trusted_commands=ws.config.policy_trusted_commands,
    )
    if verdict.decision != RUN and not (verdict.cls == OPAQUE and mode != AUTOPILOT):
        _stop_unless_approved(ws, text, cwd, verdict.cls, verdict.reason, mode, verdict.hints)
    known = [command for command in verdict.commands if command.match is not None and None not in command.argv]
    return tuple((command.cwd or cwd, tuple(str(word) for word in command.argv)) for command in known)


def begin(ws: Workspace, event: HookEvent, commands: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
    """Write the intents of the commands that are about to run."""
    from reprieve.app.commands import begin as begin_command
    from reprieve.app.commands import catalog_of

    rules = catalog_of()
    for cwd, argv in commands:
        begin_command(ws, argv, cwd=cwd, rules=rules, call=_call(event), is_theirs=True)


def finish(ws: Workspace, event: HookEvent, *, is_failed: bool) -> None:
    """Write down what became of the effects of a call."""
    if not event.command or not os.path.exists(os.path.join(ws.home, "effects.db")):
        return
    from reprieve.app import effects
    from reprieve.app.commands import Watched, catalog_of
    from reprieve.app.commands import finish as finish_command

    with effects.journal_of(ws) as journal:
        begun = [e for e in journal.effects(states=("intent",)) if e.call.startswith(_call(event) + "/")]
    if begun:
        rules = catalog_of()
        for effect in begun:
            argv = (effect.request or {}).get("argv")
            assert isinstance(argv, list)
            code = 1 if is_failed else 0
            finish_command(ws, Watched(effect.id, tuple(map(str, argv))), exit_code=code, rules=rules)


def _call(event: HookEvent) -> str:
    return f"{event.agent}:{event.session}:{event.call_id or event.input_key}"


def _stop_unless_approved(
    ws: Workspace, text: str, cwd: str, cls: str, reason: str, mode: str, hints: tuple[str, ...]
) -> None:
    from reprieve.app.effects import approvals_of, journal_of
    from reprieve.policy.redact import redact
    from reprieve.store.hashing import sha256

    hash = sha256(f"command\0{cwd}\0{text}".encode("utf-8", "surrogatepass")).hex()
    try:
        with journal_of(ws) as journal:
            approvals = approvals_of(journal, ws)
            if approvals.use(hash):
                return
            asked = approvals.ask(hash, f"run in {cwd}: {redact(text)}", cls)
    except ReprieveError as error:
        raise Stopped("deny", f"Reprieve cannot ask anybody: {error.message}") from error
    word = f"Reprieve: this step can't be taken back ({reason})."
    if mode == AUTOPILOT:
        tips = "; ".join(hints)
        raise Stopped(
            "deny", f"{word} Autopilot refuses it. {tips}. A person can allow exactly this: reprieve approve {asked.id}"
        )
    raise Stopped("ask", f"{word} A person can also allow exactly this once: reprieve approve {asked.id}")
