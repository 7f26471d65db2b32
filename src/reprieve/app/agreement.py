"""Whether a plan needs a person, and what that person is asked. One place, for every front end that an agent can call.

A plan that takes back only what is known to be a coding agent's own work needs none: nothing is lost, and `redo` brings
it back. What is a person's, of unknown origin, outside the tree or outside the machine is never moved on an agent's
word.
"""

from __future__ import annotations

from reprieve.app.effects import approvals_of, journal_of, need_approval
from reprieve.app.words import count, path, safe
from reprieve.errors import Refused
from reprieve.model.actor import PERSON, REPRIEVE, UNKNOWN, parts, said
from reprieve.model.effect import COMPENSABLE, REVERSIBLE
from reprieve.model.plan import CANCEL_EFFECT, CLASH, THREAD, UNDO_EFFECT
from reprieve.store.hashing import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.workspace import Workspace
    from reprieve.effects.journal import Journal
    from reprieve.model.plan import Action, EffectAction, Plan
    from reprieve.policy.approvals import Approval

_SHOWN = 50  # paths in a question; the plan has all of them, and its hash covers them


def why_a_person(plan: Plan, own: str = "") -> str:
    """What in it is not the agent's own to take back; "" if nothing is. `own`: the actor of a run that asks."""
    if any(action.verb in (UNDO_EFFECT, CANCEL_EFFECT) for action in plan.effects):
        return "it reaches outside of the folder"
    for action in plan.actions:
        if action.path.startswith(b"/"):
            return f"'{path(action.path)}' is outside of the folder"
        if action.actor != own and not action.is_times and not _is_agents(action):
            whose = said(action.actor or UNKNOWN, person="the user")  # an agent reads this
            return f"'{path(action.path)}' was changed by {safe(whose)}"
    return ""


def need_person(ws: Workspace, plan: Plan, *, asker: str, own: str = "") -> None:
    """Raises Refused until a person agreed to exactly this plan, once. `asker`: a plan of another session's is another.

    The error's data names the approval that waits (`approval`), to be given at a terminal or by the client's own form.
    """
    reason = why_a_person(plan, own)
    if reason:
        with journal_of(ws) as journal:
            cls = COMPENSABLE if plan.effects else REVERSIBLE
            what = f"{asker}\0{plan.kind}\0{plan.id}"
            need_yes(ws, journal, question(plan), what, cls=cls, reason=reason, and_then=plan.effects)


def need_yes(
    ws: Workspace,
    journal: Journal,
    action: str,
    what: str,
    *,
    cls: str,
    reason: str,
    and_then: Sequence[EffectAction] = (),
) -> None:
    """Raises Refused until a person said yes to this action. `what` tells it from every other.

    `and_then`: effects whose inverses may need a yes of their own; the first is not used up before both are there.
    """
    hash = sha256(f"apply\0{what}".encode()).hex()
    approvals = approvals_of(journal, ws)
    if approvals.has(hash):
        need_approval(ws, journal, and_then, is_only_a_look=True)
    if approvals.use(hash):
        return
    asked = approvals.ask(hash, action, cls)
    raise Refused(
        f"this needs a person's yes, because {reason}; nothing was touched",
        hints=[
            f"ask the person to look at it in a terminal of their own: reprieve approve {asked.id}",
            "afterwards the same call does exactly this, once",
        ],
        data={"approval": asked.id, "hash": hash},
    )


def waiting(ws: Workspace, id: str) -> Approval:
    """The question of that id. Raises BadRef."""
    with journal_of(ws) as journal:
        return approvals_of(journal, ws).get(id)


def decide(ws: Workspace, id: str, *, is_approved: bool) -> Approval:
    """Write down a person's answer, which came over a channel that the agent does not hold."""
    with journal_of(ws) as journal:
        return approvals_of(journal, ws).decide(id, is_approved=is_approved)


def question(plan: Plan) -> str:
    """What would be done, for the person who decides. Effects complete, since nobody can look them up in the folder."""
    where = f"{plan.target} '{safe(plan.label)}'" if plan.label else plan.target
    lines = [f"{plan.kind} to {where}" if where else plan.kind]
    for effect in plan.effects:
        if effect.verb in (UNDO_EFFECT, CANCEL_EFFECT):
            doubt = "" if effect.is_trusted else " (written by an agent)"
            lines.append(
                f"{effect.verb} effect {effect.effect} {safe(effect.description)}: {safe(effect.reason)}{doubt}"
            )
        elif effect.verb == CLASH:
            lines.append(f"conflict of effect {effect.effect} {safe(effect.description)}: {safe(effect.reason)}")
    shown = [action for action in plan.actions if action.verb != "set times"]
    for action in shown[:_SHOWN]:
        lines.append(f"{action.verb} {path(action.path)} (by {safe(said(action.actor or UNKNOWN))})")
    if len(shown) > _SHOWN:
        lines.append(f"and {count(len(shown) - _SHOWN, 'path')} more, all in the plan {plan.id}")
    return "; ".join(lines)


def _is_agents(action: Action) -> bool:
    if action.kind == THREAD:
        return True  # states are only ever appended to
    return is_agents(action.actor)


def is_agents(actors: str) -> bool:
    """Whether each of these (several with commas) is known to be a coding agent's session."""
    names = [name for actor in actors.split(",") for name in parts(actor)]
    return bool(names) and all(
        ":" in name and not name.startswith("run:") and name not in (PERSON, UNKNOWN, REPRIEVE) for name in names
    )
