"""The gate in a coding agent's hook: what can't be taken back is asked about or refused; known effects are recorded.

    before a shell call   read its text ─▶ run │ ask │ refuse; an approval of exactly this text lets it pass once
                          run, ask: what the catalog knows is captured and its intent written
    after it              the outcome, with the inverse
    no end was reported   unknown: it may have happened

Who is asked in the agent and says yes is heard by the agent alone: the call runs next, so all is made ready for it.
In assist only text that names a program which reaches out is read: all else costs a look for words. In autopilot every
command is read, and what can't be read is refused like what can't be taken back.
"""

from __future__ import annotations

import os

from reprieve.errors import Refused, ReprieveError
from reprieve.model.hookevent import ASK, DENY, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.model.hookevent import HookEvent
    from reprieve.policy.scene import SimpleCommand

    Commands = tuple[SimpleCommand, ...]  # whose effects are to be recorded, each with its folder

AUTOPILOT = "autopilot"
_UNSEEN = "its end was not reported"


class Stopped(Refused):
    """The call must not run now: ask the person, or refuse it."""

    def __init__(self, decision: str, message: str) -> None:
        super().__init__(message)
        self.decision = decision  # ask or deny, as in a hook's answer
        self.note = ""  # for the agent's model


def look(ws: Workspace, event: HookEvent, *, is_again: bool = False) -> tuple[Commands, Stopped | None]:
    """The commands of a call whose effects are to be recorded, and the question that the agent has to ask.

    `is_again`: the call was reported before and may be running. Raises Stopped if it is refused.
    """
    text, mode = event.command or "", ws.config.policy_mode
    from reprieve.app.commands import catalog_of
    from reprieve.policy.classes import OPAQUE, SAFE
    from reprieve.policy.decide import RUN
    from reprieve.policy.gate import judge_call
    from reprieve.policy.redact import redact_beside

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
    asked = None
    cls, reason = verdict.cls, verdict.reason
    if cls == OPAQUE and mode != AUTOPILOT:
        # what nobody can read is left to the agent's own questions; not so what can be read beside it
        plain = next((c for c in verdict.commands if c.cls not in SAFE and c.cls != OPAQUE), None)
        cls, reason = (plain.cls, plain.reason) if plain is not None else (cls, reason)
    if verdict.decision != RUN and not (cls == OPAQUE and mode != AUTOPILOT):
        runs = [command.argv for command in verdict.commands]
        reason = redact_beside(reason, text, runs)
        asked = _unless_approved(ws, text, runs, cwd, cls, reason, mode, verdict.hints, is_again=is_again)
    if asked is not None and not (asked.decision == ASK and event.can_ask):
        raise asked
    known = [command for command in verdict.commands if command.match is not None and None not in command.argv]
    return tuple(command.replace(cwd=command.cwd or cwd) for command in known), asked


def begin(ws: Workspace, event: HookEvent, window: str, commands: Commands) -> None:
    """Write the intents of the commands that are about to run in that window."""
    from reprieve.app.commands import begin as begin_command
    from reprieve.app.commands import catalog_of

    rules = catalog_of()
    for number, command in enumerate(commands):
        # agents without call ids make the same call again, and a call may run the same command twice
        call = f"{event.agent}:{event.session}:{event.call_id or event.input_key}/{window}/{number}"
        argv = [str(word) for word in command.argv]
        begin_command(
            ws, argv, cwd=command.cwd, rules=rules, call=call, is_theirs=True, variables=dict(command.variables),
            launcher=command.match.prefix[: command.match.prefix.index(argv[0])] if command.match is not None else (),
        )  # fmt: skip


def finish(ws: Workspace, window: str, end: str) -> None:
    """Write down what became of the effects of a call: `end` is after, failed, refused (it never ran) or unknown."""
    if not os.path.exists(os.path.join(ws.home, "effects.db")):
        return
    from reprieve.app import effects
    from reprieve.model.effect import INTENT, REFUSED, UNKNOWN

    with effects.journal_of(ws) as journal:
        begun = list(journal.effects(windows=(window,), states=(INTENT,)))
        # an end that was missing is known after all when it comes late
        begun += [e for e in journal.effects(windows=(window,), states=(UNKNOWN,)) if e.detail == _UNSEEN]
        begun = [effect for effect in begun if f"/{window}/" in effect.call]
        if end in (REFUSED, UNKNOWN):
            for effect in begun:
                journal.finish(effect.id, end, detail=_UNSEEN if end == UNKNOWN else "it was refused and did not run")
            return
    if begun:
        from reprieve.app.commands import Watched, catalog_of
        from reprieve.app.commands import finish as finish_command

        rules = catalog_of()
        for effect in begun:
            argv = (effect.request or {}).get("argv")
            assert isinstance(argv, list)
            code = 1 if end == FAILED else 0
            finish_command(ws, Watched(effect.id, tuple(map(str, argv))), exit_code=code, rules=rules)


def _unless_approved(
    ws: Workspace,
    text: str,
    runs: Sequence[Sequence[str | None]],
    cwd: str,
    cls: str,
    reason: str,
    mode: str,
    hints: tuple[str, ...],
    *,
    is_again: bool,
) -> Stopped | None:
    from reprieve.app.effects import approvals_of, journal_of
    from reprieve.store.hashing import sha256

    hash = sha256(f"command\0{cwd}\0{text}".encode("utf-8", "surrogatepass")).hex()
    try:
        with journal_of(ws) as journal:
            approvals = approvals_of(journal, ws)
            if approvals.use(hash) or (is_again and approvals.was_used(hash)):
                return None
            asked = approvals.ask(hash, f"run in {cwd}: {_shown(text, runs)}", cls)
    except ReprieveError as error:
        raise Stopped(DENY, f"Reprieve cannot ask anybody: {error.message}") from error
    word = f"Reprieve: this step can't be taken back ({reason})."
    if mode == AUTOPILOT:
        tips = "; ".join(hints)
        return Stopped(
            DENY, f"{word} Autopilot refuses it. {tips}. A person can allow exactly this: reprieve approve {asked.id}"
        )
    return Stopped(ASK, f"{word} A person can also allow exactly this once: reprieve approve {asked.id}")


def _shown(text: str, runs: Sequence[Sequence[str | None]]) -> str:
    """The line for the person who is to allow it, without secrets. No command goes with them: TOKEN="$(rm -r x)"."""
    from reprieve.policy.redact import MASK, redact, redact_values, redact_words

    shown = redact(text)
    if shown == text:
        return shown
    # what is echoed may be a password for the next one in the pipe
    spoken = [(argv[0], None) if argv[0] in ("echo", "printf") else argv for argv in runs if argv]
    # word by word: in a line of them a pattern may take too much for a secret
    lines = [redact_words(["…" if word is None else word for word in argv]) for argv in spoken]
    if len(lines) < 2 and all(word in shown or MASK in word or word == "…" for words in lines for word in words):
        return shown if lines else f"{shown} (what it runs could not be read)"
    return f"{shown} (what it runs: {redact_values('; '.join(map(' '.join, lines)), text)})"
