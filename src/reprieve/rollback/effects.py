"""Undo effects: one plan over all kinds in one reverse order, then each inverse once.

    plan:     newest first; each with a live look at the world, so that the preview shows conflicts already
    execute:  claim (durable) ─▶ look again ─▶ inverse ─▶ outcome (durable)

What fails stops what it stands on: an older effect on the same resource, or on one that the failed effect needs, is
left alone. All others go on. Killed anywhere, the next command looks first and then goes on; an inverse that may have
been sent is sent again only where that cannot make it happen twice.
"""

from __future__ import annotations

from reprieve.effects.account import words_of
from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR
from reprieve.effects.guarded import Guarded
from reprieve.errors import Refused
from reprieve.model.effect import (
    CONFLICT,
    DONE,
    FAILED,
    GONE,
    HELD,
    INTENT,
    KEPT,
    MANUAL,
    READ,
    REFUSED,
    UNDOING,
    UNDONE,
    UNKNOWN,
    WANTED,
)
from reprieve.model.plan import (
    CANCEL_EFFECT,
    CLASH,
    KEEP_EFFECT,
    LEAVE_EFFECT,
    UNDO_EFFECT,
    EffectAction,
    EffectOutcome,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from reprieve.effects.driver import Driver
    from reprieve.effects.journal import Journal
    from reprieve.model.effect import Effect

    Drivers = Mapping[str, Driver]
    Cancels = Mapping[str, Callable[[Effect], tuple[str, str]]]

_NOT_KNOWN = "whether it happened is not known"


def plan_effects(
    journal: Journal,
    effects: Iterable[Effect],
    drivers: Drivers,
    *,
    now_ns: int,
    is_live: bool = True,
    is_persons: Callable[[Effect], bool] | None = None,
) -> Iterator[EffectAction]:
    """What to do with each effect, newest first. `is_live`: look at the world (the network) as well.

    `is_persons`: whether a person holds it, and no agent; then it stays held.
    """
    names = journal.remapped()
    # what later effects of this plan will have put back by then, and what that is in; by hash, as there may be many
    coming: set[int] = set()
    around: set[int] = set()
    looked: set[int] = set()
    for effect in effects:
        if not effect.is_open:
            continue
        # where a later one is undone first, the world of now says nothing about this one: it is looked at in its turn
        # (a command names what it changed by its looks)
        above = [hash(each) for each in _upwards(effect.resource)] if effect.kind != "command" else []
        mine = _looked_at(effect)
        is_first = mine.isdisjoint(looked) and (not above or (above[0] not in around and coming.isdisjoint(above)))
        if effect.state == HELD and is_persons is not None and is_persons(effect):
            verb, says = KEEP_EFFECT, "held by you, outside of every agent's step"
        else:
            verb, says, _ = _decide(journal, effect, drivers, names, now_ns, is_live and is_first)
        if verb == UNDO_EFFECT:
            looked |= mine
        if verb == UNDO_EFFECT and above:
            coming.add(above[0])
            around.update(above)
        yield EffectAction(
            effect.id, verb, effect.kind, effect.cls, effect.description, says, effect.actor, effect.is_trusted,
            words_of(effect.inverse),
        )  # fmt: skip


def hash_of_plan(steps: Iterable[EffectAction], journal: Journal, sha256: Callable[[bytes], bytes]) -> bytes:
    """Covers each effect with its frozen inverse: an approval is for exactly this."""
    from reprieve.model.quickjson import dumps

    total = b""
    for step in steps:
        effect = journal.get(step.effect)
        facts = dumps([step.effect, step.verb, effect.inverse, effect.state], sort_keys=True)
        total = sha256(total + facts.encode())
    return total


def undo_effects(
    journal: Journal,
    steps: Iterable[EffectAction],
    drivers: Drivers,
    *,
    now_ns: int,
    tell: Callable[[EffectAction, EffectOutcome], None] | None = None,
    cancels: Cancels | None = None,
) -> list[EffectOutcome]:
    """Carry the plan out, newest first. The chain is proven first: no row of a damaged journal is acted upon.

    `cancels`: by kind, what cancels a held effect of which there is something in the world already; gives its state
    and detail, and raises Refused if it is held no more.
    """
    journal.log.must_be_whole(journal.workspace)
    blocked: dict[str, str] = {}
    results = []
    for step in steps:
        result = _one(journal, step, drivers, blocked, now_ns, cancels or {}).replace(account=step.account)
        results.append(result)
        if tell is not None:
            tell(step, result)
    return results


def _decide(
    journal: Journal, effect: Effect, drivers: Drivers, names: Mapping[str, str], now_ns: int, is_live: bool
) -> tuple[str, str, str]:
    """What to do, the words for it, and where it is left: what the undo's state becomes."""
    if effect.state == HELD:
        return CANCEL_EFFECT, "cancel it: it was held and never left", ""
    if effect.state == INTENT:
        return LEAVE_EFFECT, "it is still under way; run this again when it is finished", WANTED
    if effect.undo_state == UNDOING and not journal.is_orphaned(effect):
        return LEAVE_EFFECT, "another process is undoing it", UNDOING
    if effect.cls == READ:
        return KEEP_EFFECT, effect.detail, KEPT
    found = drivers.get(str((effect.inverse or {}).get("kind", effect.kind)))
    if effect.inverse is None or found is None:
        return LEAVE_EFFECT, why_not(effect), MANUAL if effect.state == UNKNOWN else GONE
    driver = Guarded(found)
    if effect.expires_at and effect.expires_at < now_ns:
        return LEAVE_EFFECT, "the time in which it could be undone is over", MANUAL
    if effect.undo_state == MANUAL and not driver.may_repeat(effect):
        return LEAVE_EFFECT, f"a person has to look: {effect.detail}", MANUAL
    if effect.undo_state == UNDOING and not driver.may_repeat(effect):
        why = "its undo was interrupted and may have been done; see whether it was"
        return LEAVE_EFFECT, f"{why}. It would be: {driver.says(effect)}", MANUAL
    says = driver.says(effect)
    if not is_live:
        return UNDO_EFFECT, says, ""
    if effect.state == UNKNOWN and driver.resolve(effect) == UNKNOWN:
        if effect.detail.startswith(_NOT_KNOWN):
            return LEAVE_EFFECT, effect.detail, MANUAL  # as an earlier rollback said
        why = f"{_NOT_KNOWN}, so it is not undone ({effect.detail})"
        return LEAVE_EFFECT, f"{why}. It would be: {says}", MANUAL
    check = driver.check(effect, names)
    if check.state == CHANGED:
        return CLASH, check.detail, CONFLICT
    if check.state == UNCLEAR:
        return LEAVE_EFFECT, f"{check.detail}. It would be: {says}", FAILED
    return UNDO_EFFECT, says, ""


def _one(
    journal: Journal,
    step: EffectAction,
    drivers: Drivers,
    blocked: dict[str, str],
    now_ns: int,
    cancels: Cancels,
) -> EffectOutcome:
    effect = journal.get(step.effect)
    if step.verb == KEEP_EFFECT:
        return EffectOutcome(effect.id, KEPT, step.reason, effect.description)
    names = journal.remapped()
    # decided anew: between the plan and now somebody may have changed the world, released or cancelled
    verb, says, left = _decide(journal, effect, drivers, names, now_ns, True)

    def ends(state: str, detail: str) -> EffectOutcome:
        if state not in (UNDONE, "canceled", KEPT):
            blocked[effect.resource] = effect.description or effect.id
            for needed in effect.depends:
                blocked[needed] = effect.description or effect.id
        return EffectOutcome(effect.id, state, detail, effect.description)

    if not effect.is_open:
        return EffectOutcome(effect.id, effect.undo_state or effect.state, "nothing was left to do", effect.description)
    if verb == CANCEL_EFFECT:
        try:
            if effect.kind in cancels:
                return ends(*cancels[effect.kind](effect))
            journal.cancel(effect.id, "by a rollback")
        except Refused as e:
            return ends(CONFLICT, e.message)
        return ends("canceled", "it was held and never left")
    if verb in (LEAVE_EFFECT, CLASH):
        if effect.undo_state not in (left, UNDOING):
            journal.survive(effect.id, left, says)
        elif effect.undo_state == UNDOING and left == MANUAL:
            journal.end_undo(effect.id, MANUAL, says)
        return ends(left, says)
    by = _in_the_way(effect, blocked)
    if by:
        detail = f"left alone: it is needed by '{by}', which was not undone"
        if effect.undo_state != FAILED:
            journal.survive(effect.id, FAILED, detail)
        return ends(FAILED, detail)
    return ends(*_undo(journal, effect, Guarded(drivers[str((effect.inverse or {})["kind"])]), names))


def _undo(journal: Journal, effect: Effect, driver: Driver, names: Mapping[str, str]) -> tuple[str, str]:
    if effect.state == UNKNOWN:
        known = driver.resolve(effect)
        if known == REFUSED:
            journal.finish(effect.id, REFUSED, detail="it did not happen, as a look at the world shows")
            return UNDONE, "it had not happened"
        if known == DONE:
            journal.finish(effect.id, DONE, detail="it did happen, as a look at the world shows")
    try:
        claimed = journal.start_undo(effect.id)
    except Refused as e:
        return CONFLICT, e.message  # another process was first
    check = driver.check(claimed, names)
    if check.state == ALREADY:
        journal.end_undo(effect.id, UNDONE, check.detail)
        return UNDONE, check.detail
    if check.state != READY:
        state = CONFLICT if check.state == CHANGED else FAILED
        journal.end_undo(effect.id, state, check.detail)
        return state, check.detail
    outcome = driver.undo(claimed, names)
    with journal.log.transaction():
        if outcome.renamed is not None:
            journal.remap(effect.id, *outcome.renamed)
        journal.end_undo(effect.id, outcome.undo_state, outcome.detail)
    return outcome.undo_state, outcome.detail


def _looked_at(effect: Effect) -> set[int]:
    """What the looks of a command look at, by hash."""
    looks = (effect.inverse or {}).get("looks")
    return {hash(tuple(look["argv"])) for look in looks} if isinstance(looks, list) else set()


def _upwards(resource: str) -> Iterator[str]:
    """A resource and all that it is in: /items/1/notes/2, /items/1/notes, /items/1, …"""
    while resource:
        yield resource
        above = resource.rpartition("/")[0]
        resource = "" if above.endswith(("/", ":")) or "/" not in above else above


def _in_the_way(effect: Effect, blocked: Mapping[str, str]) -> str:
    """What was not undone and stands on this effect; effects without a resource may stand on each other."""
    for resource, by in blocked.items():
        if resource == effect.resource or (effect.resource and resource.startswith(effect.resource.rstrip("/") + "/")):
            return by
    return ""


def why_not(effect: Effect) -> str:
    """Why there is no way back."""
    if effect.kind == "mail" and effect.state == UNKNOWN:
        return _because("it may have been delivered, and then it is gone", effect.detail)
    if effect.kind == "mail":
        return "it was delivered and is gone"
    if effect.state == UNKNOWN:
        return _because(f"{_NOT_KNOWN}, and it has no inverse", effect.detail)
    return _because(f"it is {effect.cls}: there is no inverse", effect.detail)


def _because(fact: str, detail: str) -> str:
    """The fact with its reason, once: an earlier rollback may have written both down as the detail."""
    if not detail or detail == fact:
        return fact
    return detail if detail.startswith((f"{fact} (", f"{_NOT_KNOWN}, ")) else f"{fact} ({detail})"
