"""`reprieve run`: run any command so that what it does to the tree can be taken back."""

from __future__ import annotations

import os
import sys

from reprieve.app.render import checkpoint_json, plan_json, report_json
from reprieve.app.run import Ran
from reprieve.app.run import run as run_command
from reprieve.app.weaker import as_json, sentence
from reprieve.cli import humane, opening
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprieve.app.workspace import Workspace
    from reprieve.model.plan import EffectOutcome

SPEC = Command(
    "run",
    "Run a command so that its changes can be taken back",
    (
        ("reprieve run -- claude", "run an agent; afterwards: reprieve status, reprieve rollback"),
        ("reprieve run --on-failure rollback --label deps -- npm update", "take its changes back if it fails"),
    ),
    details=(
        "Takes a checkpoint, runs the command with its arguments, terminal and signals untouched, and takes another: "
        "what changed in between belongs to that run. --on-failure rollback takes files back; effects outside of the "
        "folder are named, with the command that undoes them. If another run or agent was at work in the folder "
        "meanwhile and nobody can tell whose a change is, nothing is taken back, and that is said. With --json the "
        "command's output goes to standard error."
    ),
    trailing=Argument("CMD", "The command and its arguments", is_required=True, is_many=True, complete="command-line"),
    options=(
        Option("--label", "Name the run; `step:LABEL` means the point just before it", metavar="L"),
        Option("--check", "A shell command that decides whether it went well, besides its exit code", metavar="CMD"),
        Option(
            "--on-failure",
            "What to do with the changes of a run that failed",
            metavar="CHOICE",
            choices=("keep", "rollback"),
            default="keep",
        ),
        Option(
            "--isolate",
            "What it is shut out of; net: any network but a loopback of its own",
            metavar="CHOICE",
            choices=("none", "net"),
            default="none",
        ),
        Option("--hold-mail", "Hold mail that it hands to sendmail, or to SMTP_HOST:SMTP_PORT"),
        Option("--record-http", "Record the HTTP calls of Python programs that it starts, or end those that can't be"),
        opening.ANYWHERE,
    ),
    exit_codes=(
        (126, "CMD cannot be executed"),
        (127, "there is no such CMD"),
        (128, "and more: CMD ended by a signal"),
    ),
)


def run(args: Parsed, out: Terminal) -> int:
    if not args.many("CMD")[0]:
        raise Usage("the command is empty")
    with opening.workspace(args, out, create=True) as ws:
        if args.text("directory"):
            _stand_in(args.start)
        kept_out = _give_stdout_to_stderr() if out.json else None
        try:
            done = run_command(
                ws,
                args.many("CMD"),
                label=args.text("label"),
                on_failure=args.text("on-failure", "keep"),
                check=args.text("check"),
                hold_mail=args.flag("hold-mail"),
                isolate=args.text("isolate", "none"),
                record_http=args.flag("record-http"),
            )
            held = _held(ws, done) if args.flag("hold-mail") else 0
            is_weaker = bool(done.weaker) and done.weaker != ws.config.weaker
        finally:
            if kept_out is not None:
                os.dup2(kept_out, 1)
                os.close(kept_out)
    if out.json:
        out.answer(
            exit_code=done.exit_code,
            changed=done.changed,
            before=checkpoint_json(done.before),
            after=checkpoint_json(done.after, done.gaps),
            check=_check_json(args.text("check"), done) if args.text("check") else None,
            plan=plan_json(done.plan) if done.plan else None,
            report=report_json(done.report) if done.report else None,
            still_running=[{"pid": pid, "command": name} for pid, name in done.still_running],
            undo_effects=_undo_effects(done) if _standing(done) else None,
            not_taken_back=done.problem or None,
            **({"held_mail": held} if args.flag("hold-mail") else {}),
            **({"unaccepted_settings": as_json(done.weaker)} if done.weaker or ws.config.weaker else {}),
        )
    elif not out.quiet:
        # On standard error: standard output belongs to the command
        say = out.error_line
        changed = humane.count(done.changed, "path") + " changed" if done.changed else "nothing changed"
        say(f"Reprieve: {changed}; before the run: {done.before.id}, after it: {done.after.id}")
        if done.gaps:
            some = ", ".join(humane.path(gap.path) for gap in done.gaps[:3]) + (", …" if len(done.gaps) > 3 else "")
            say(f"Reprieve: not protected: {some}; why: reprieve status")
        for text in done.mistakes:
            say(f"Reprieve: {humane.safe(text)}")
        if is_weaker:
            say(f"Reprieve: {humane.safe(sentence(done.weaker, is_new=True))}")
        for text in _after_failure(done):
            say(f"Reprieve: {text}")
        if held:
            say(f"Reprieve: {humane.count(held, 'message')} held, none sent; see: reprieve mail pending")
        if done.report is None and not done.problem and done.changed:
            say(f"Reprieve: see them: reprieve diff {done.before.id}; undo them: reprieve rollback {done.before.id}")
    return done.exit_code


def _held(ws: Workspace, done: Ran) -> int:
    """How many messages of the run wait for a person."""
    from reprieve.app import mail

    return sum(effect.at >= done.before.seq for effect in mail.waiting(ws))


def _after_failure(done: Ran) -> Iterator[str]:
    """What is to be said about a run or check that failed."""
    if done.is_check_red:
        name = humane.safe(done.after.step)
        yield f"the check is red after step '{name}' (exit code {done.exit_code})"
        if done.report is None and not done.problem:
            yield f"take that step back: reprieve undo {done.after.id}"
    if done.problem:
        yield f"its changes were not taken back: {done.problem}"
        yield f"see what is in the way: reprieve undo {done.after.id} --dry-run; without --dry-run it is taken back"
    standing = _standing(done)
    if done.report is not None and done.report.operation:
        of_step = "the files of that step were" if standing else "that step was"
        of_run = f"the run failed, its changes{' of files' if standing else ''} were"
        what = of_step if done.is_check_red else of_run
        yield f"{what} taken back; bring back what it did with: {done.report.redo}"
    elif done.report is not None and not standing:
        yield "there was nothing to take back"
    if done.still_running:
        which = ", ".join(f"{humane.safe(name)} (pid {pid})" for pid, name in done.still_running)
        yield f"still running, and may write again what was taken back: {which}"
    if standing:
        some = ", ".join(humane.safe(effect.description) for effect in standing[:3])
        which = f"{some}, …" if len(standing) > 3 else some
        yield f"{humane.count(len(standing), 'effect')} outside of the folder not undone: {which}"
        yield f"undo what is outside of the folder, too: {_undo_effects(done)}"
    if done.report is not None and (stays := len(done.report.conflicts) + len(done.report.not_undone)):
        yield f"{humane.count(stays, 'path')} could not be taken back; see: reprieve status --since {done.before.id}"


def _standing(done: Ran) -> list[EffectOutcome]:
    """What the run did outside of the folder and what was not taken back with its files."""
    return [effect for effect in done.report.effects if not effect.is_undone] if done.report is not None else []


def _undo_effects(done: Ran) -> str:
    return f"reprieve rollback {done.before.id} --yes"


def _check_json(command: str, done: Ran) -> dict[str, object]:
    """The check's word; `step` is what it is about."""
    return {
        "command": command,
        "red": done.is_check_red,
        "step": done.after.id,
        "undo": f"reprieve undo {done.after.id}" if done.is_check_red and done.report is None else None,
    }


def _stand_in(folder: str) -> None:
    """Let the command start there, too. Where our own files are does not follow from it."""
    for name in ("REPRIEVE_HOME", "REPRIEVE_CONFIG"):
        if given := os.environ.get(name):
            os.environ[name] = os.path.abspath(os.path.expanduser(given))
    os.chdir(folder)
    os.environ["PWD"] = folder  # as `cd` does; a program may go by it


def _give_stdout_to_stderr() -> int:
    """Let the command write to standard error instead: standard output is for the one JSON object."""
    if sys.stdout is not None:
        sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept
