"""Show what would be written to files of coding agents, ask, write: what `protect` and `unprotect` have in common."""

from __future__ import annotations

from reprieve.agents import foreign, registry
from reprieve.cli import humane
from reprieve.cli.this_machine import records
from reprieve.errors import Misconfigured, Refused, ReprieveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reprieve.agents.foreign import Change
    from reprieve.cli.terminal import Terminal

PARTLY = 6
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def names_of(names: Sequence[str]) -> list[str]:
    """The agents that were named, each once. Raises Usage for a name that is none."""
    for name in names:
        registry.load(name)
    return list(dict.fromkeys(names))


def _title(agent: str) -> str:
    return registry.load(agent).TITLE


def show(changes: Sequence[Change], out: Terminal, *, nothing: str, title_of: Callable[[str], str] = _title) -> None:
    """Every file with its difference."""
    for change in changes:
        title = title_of(change.agent)
        if change.problem is not None:
            out.line(f"{title}: {humane.safe(change.problem.message)}", "red")
            for hint in change.problem.hints:
                out.line(f"  Hint: {humane.safe(hint)}")
        elif not change.is_needed:
            out.line(f"{title}: {nothing} ({humane.safe(change.path)})")
        else:
            out.line(f"{title}: {humane.safe(change.path)}", "bold")
            for line in change.diff().splitlines():
                out.line(f"  {humane.safe(line)}", *filter(None, (_COLOURS.get(line[:1]),)))


def carry_out(
    changes: Sequence[Change],
    out: Terminal,
    *,
    ask: bool,
    question: str,
    first: Callable[[], None] | None = None,
    kept_in: str = "",
) -> list[ReprieveError]:
    """Write what is needed; the problems of those that could not be. `first` is done once it is agreed to.

    `kept_in`: a folder of ours for what the files held before, if not that of the hooks.
    """
    needed = [change for change in changes if change.is_needed]
    problems: list[ReprieveError] = [change.problem for change in changes if change.problem is not None]
    if needed and ask and out.is_interactive and not out.confirm(question.format(humane.count(len(needed), "file"))):
        raise Refused("not confirmed; nothing was written")
    if first is not None and (needed or not problems):
        first()
    done = 0
    for change in needed:
        try:
            foreign.apply(change, records=kept_in or records())
            done += 1
        except ReprieveError as problem:
            problems.append(problem)
            out.reporter.warn(problem.message)
    if problems and not done and len(problems) == len(changes):
        raise problems[0] if len(problems) == 1 else _all_failed(problems)
    return problems


def _all_failed(problems: Sequence[ReprieveError]) -> Misconfigured:
    return Misconfigured(
        "none of the files could be changed",
        details=[problem.message for problem in problems],
        hints=list(dict.fromkeys(hint for problem in problems for hint in problem.hints)),
    )


def changes_json(changes: Sequence[Change]) -> list[dict[str, object]]:
    """For programs."""
    return [
        {
            "agent": change.agent,
            "scope": change.scope,
            "path": change.path,
            "change": "none" if not change.is_needed else "remove" if change.is_removal else "install",
            "diff": change.diff() if change.is_needed else "",
            "problem": change.problem.message if change.problem is not None else "",
        }
        for change in changes
    ]
