"""`reprieve watch`: protect the tree against whatever changes it."""

from __future__ import annotations

import time

from reprieve.app.checking import KEEP, ROLLBACK, Checks
from reprieve.app.render import checkpoint_json, report_json
from reprieve.app.stopping import Stop
from reprieve.app.watch import Step, Watch, Watching
from reprieve.app.weaker import as_json
from reprieve.cli import humane, opening
from reprieve.cli.spec import Command, Option, Parsed
from reprieve.cli.terminal import Terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.checking import Verdict
    from reprieve.model.timeline import TimelineEntry

SPEC = Command(
    "watch",
    "Take a checkpoint whenever something changes, until Ctrl-C",
    (
        ("reprieve watch", "protect this folder against whatever changes it"),
        ('reprieve watch --check "make test" --on-failure rollback', "and take back each step that breaks it"),
    ),
    details=(
        "Changes that come together are one step; a storm that does not end has one every five seconds. Each step is "
        "a line: what changed, and its checkpoint. Paths outside that `track` added are looked at with each step, "
        "and once a minute. Nothing is recorded while nothing changes, so `redo` stays possible. The check runs in "
        "the tree when a step has settled; it is run once at the start, and only a step that turns it from green to "
        "red is blamed. Ctrl-C, SIGTERM and SIGHUP end it with a last checkpoint and exit code 0; a second Ctrl-C "
        "ends it at once."
    ),
    options=(
        Option("--once", "Stop after the first change that was caught"),
        Option("--check", "A shell command that says whether all is well", metavar="CMD"),
        Option(
            "--on-failure",
            "What to do with a step that turned the check red",
            metavar="CHOICE",
            choices=(KEEP, ROLLBACK),
            default=KEEP,
        ),
        opening.ANYWHERE,
    ),
    exit_codes=((1, "with --once: the check is red"), (3, "the folder is gone")),
)
_SHOWN = 3  # paths on a line


class _Live(Watching):
    """A line per step and per change of the check's colour."""

    def __init__(self, out: Terminal) -> None:
        self.out = out
        self.steps: list[dict[str, object]] = []
        self.checks: list[dict[str, object]] = []

    def begins(self, root: str, first: TimelineEntry) -> None:
        self._say(f"Watching {humane.safe(root)}; Ctrl-C ends. As it is now: {first.id}")

    def stepped(self, step: Step) -> None:
        self.steps.append(checkpoint_json(step.entry, step.gaps))
        shown = [f"{change.change} {humane.path(change.path)}" for change in step.changes[:_SHOWN]]
        more = len(step.changes) - _SHOWN
        text = ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
        self._line(f"{text}  {self.out.styled(step.entry.id, 'yellow')}")

    def checked(self, verdict: Verdict) -> None:
        steps = [step.id for step in verdict.steps]
        self.checks.append(
            {
                "exit_code": verdict.exit_code,
                "red": verdict.is_red,
                "turned_red_by": steps,
                "report": report_json(verdict.report) if verdict.report else None,
                "problem": verdict.problem,
            }
        )
        if not verdict.is_red:
            self._line(self.out.styled("the check is green" + (" again" if verdict.was_red else ""), "green"))
        elif not steps:
            self._line(self.out.styled(f"the check is red (exit code {verdict.exit_code})", "red"))
            if not verdict.was_red:
                self._say("          It was before anything changed: no step is blamed until it is green")
        else:
            which = f"step {steps[0]}" if len(steps) == 1 else f"one of the steps {', '.join(steps)}"
            self._line(self.out.styled(f"{which} turned the check red (exit code {verdict.exit_code})", "red"))
            self._after(verdict, steps)

    def _after(self, verdict: Verdict, steps: list[str]) -> None:
        if verdict.report is not None:
            number = len(verdict.report.restored) + len(verdict.report.deleted)
            self._line(f"taken back: {humane.count(number, 'path')}; bring it back with: {verdict.report.redo}")
            left = [(c.path, c.reason) for c in verdict.report.conflicts]
            left += [(gap.path, gap.reason) for gap in verdict.report.not_undone]
            for path, reason in left:
                self.out.reporter.warn(f"not taken back: '{humane.path(path)}' ({reason})")
        else:
            if verdict.problem:
                self.out.reporter.warn(f"not taken back: {verdict.problem}")
            self._say("          Take it back: " + "; ".join(f"reprieve undo {step}" for step in reversed(steps)))

    def _line(self, text: str) -> None:
        self.out.line(f"{time.strftime('%H:%M:%S')}  {text}")
        self.out.flush()

    def _say(self, text: str) -> None:
        self.out.say(text)
        self.out.flush()


def run(args: Parsed, out: Terminal) -> int:
    live = _Live(out)
    check = args.text("check")
    checks = Checks(check, on_failure=args.text("on-failure", KEEP)) if check else None
    with Stop() as stop:
        watch = Watch(args.start, stop=stop, watching=live, reporter=out.reporter, checks=checks)
        watch.run(once=args.flag("once"), allow_anywhere=args.flag("anywhere"))
    out.answer(steps=live.steps, checks=live.checks)
    if watch.weaker:
        out.answer(unaccepted_settings=as_json(watch.weaker))
    return 1 if args.flag("once") and checks is not None and checks.is_red else 0
