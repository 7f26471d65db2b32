"""`reprieve compensate`: plan, or run, the inverses of effects alone."""

from __future__ import annotations

from reprieve.app import effects
from reprieve.app.render import effect_action_json, effect_outcome_json
from reprieve.cli import humane, opening
from reprieve.cli.refs import REF_HELP
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.take_back import PARTLY, counted, show_effects, show_outcomes
from reprieve.cli.terminal import Terminal
from reprieve.errors import Refused
from reprieve.model.plan import KEEP_EFFECT

SPEC = Command(
    "compensate",
    "Plan, or run, the inverses of effects and leave files alone",
    (
        ("reprieve compensate", "show what would be undone since the latest checkpoint"),
        ('reprieve compensate "before the deploy" --execute --yes', "undo it all, without asking"),
    ),
    details="Each effect is undone at most once, newest first; what fails stops only what it stands on.",
    arguments=(Argument("REF", REF_HELP + "; default: latest", complete="ref"),),
    options=(
        Option("--execute", "Run the inverses"),
        Option("--yes", "Do not ask", short="-y"),
    ),
    exit_codes=((5, "not confirmed, or an approval is missing: nothing was sent"), (6, "partly done")),
)


def run(args: Parsed, out: Terminal) -> int:
    return undo(args, out, execute=args.flag("execute"))


def undo(args: Parsed, out: Terminal, *, execute: bool) -> int:
    """Plan the effects since REF, and unless it is only a look have them undone."""
    with opening.workspace(args, out) as ws:
        side = effects.compensate(ws, args.maybe("REF"))
        if side is None:
            return _none(out)
        with side:
            if not execute:
                return _look(side, out)
            wanted = sum(action.verb != KEEP_EFFECT for action in side.actions)
            if not wanted:
                show_effects(side.actions, out)
                return _none(out)
            out.answer(actions=[effect_action_json(action) for action in side.actions])
            if not args.flag("yes"):
                show_effects(side.actions, out)
            if not args.flag("yes") and not out.confirm(f"Undo {humane.count(wanted, 'effect')}?"):
                raise Refused("effects are undone only after a yes", hints=["the same command with --yes"])
            side.need_approval()
            side.carry_out()
            show_outcomes(side.outcomes, out)
            out.answer(effects=[effect_outcome_json(outcome) for outcome in side.outcomes])
            out.say(counted(side.outcomes))
            return 0 if all(outcome.is_undone for outcome in side.outcomes) else PARTLY


def _look(side: effects.Side, out: Terminal) -> int:
    """Show each action as soon as it is known: there may be very many."""
    found = []
    is_empty = True
    for action in side.stream():
        is_empty = False
        if out.json:
            found.append(effect_action_json(action))
        else:
            show_effects((action,), out)
            out.flush()
        if out.is_closed:
            break
    if is_empty:
        return _none(out)
    out.answer(actions=found, effects=[])
    out.say("Nothing was sent. Undo them: the same command with --execute")
    return 0


def _none(out: Terminal) -> int:
    out.line("No effects to undo")
    out.answer(actions=[], effects=[])
    return 0
