"""Hold a plan to what was agreed to, after time has passed in which effects were undone. Pure.

What changed in between may be a person's work, and nobody has agreed to take it: it stays and is named.
"""

from __future__ import annotations

from reprieve.model.change import Gap
from reprieve.model.plan import Kept, Plan
from reprieve.rollback.repository import repository_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


_SINCE = "changed while effects were undone, so it stays as it is"


def only_agreed(plan: Plan, agreed: Plan, at: Callable[[bytes], bytes] = bytes) -> Plan:
    """The plan without what the agreed one does not do in just the same way; `at` gives a path its agreed name."""
    wanted = {action.path: action for action in agreed.actions}
    # a repository moves as one: an inverse such as `git push` writes there, and half of it would be worse than either
    moving = {repository_of(path) for path in wanted} - {repository_of(at(c.path)) for c in plan.conflicts} - {b""}
    left: dict[bytes, bool] = {c.path: at(c.path) in wanted for c in plan.conflicts}  # path → whether it was agreed to
    actions = []
    for action in plan.actions:
        if action.is_index:
            continue  # it goes with its database, whatever it holds by now
        before, repository = wanted.get(at(action.path)), repository_of(at(action.path))
        is_same = before is not None and (before.before, before.after) == (action.before, action.after)
        if repository in moving or (not repository and (is_same or (before is not None and action.is_times))):
            actions.append(action)
        elif not action.is_times:
            left[action.path] = before is not None
    # a database moves as one, too
    halves = {action.database for action in plan.actions if action.path in left} - {b""}
    left.update((action.path, at(action.path) in wanted) for action in actions if action.database in halves)
    actions += [action for action in plan.actions if action.is_index and action.database not in halves]
    # a folder is not taken from above what stays in it
    around = {above for path in left for above in _above(path)}
    for action in actions:
        if action.path in around and not action.is_times:
            left[action.path] = True
    actions = [action for action in actions if action.path not in left]
    kept = tuple(Kept(path, _SINCE) for path, was_agreed in left.items() if not was_agreed)
    broken = tuple(Gap(path, _SINCE) for path, was_agreed in left.items() if was_agreed)
    return plan.replace(
        actions=tuple(actions), conflicts=(), kept=(*plan.kept, *kept), not_undone=(*plan.not_undone, *broken)
    )


def _above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]
