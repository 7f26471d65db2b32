"""The journal of effects: an intent is durable before the effect leaves, its outcome after; each state change is a row.

What an effect is now is what its rows lead to (`fold`). Every change is a compare-and-set in one transaction: of two
processes that release, cancel or undo the same effect exactly one wins.
"""

from __future__ import annotations

from reprieve.errors import BadRef, Refused, Repeated
from reprieve.model import effect as states
from reprieve.model.effect import Effect, EffectDraft
from reprieve.model.quickjson import dumps, loads
from reprieve.model.value import Value
from reprieve.store.chain import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reprieve.model.effect import Json
    from reprieve.store.effectlog import EffectLog, Record

_SCANNED = 200  # effects with the same fingerprint that are looked at
_FACTS = (
    "kind", "cls", "resource", "description", "depends", "inverse", "request", "before", "rule", "fingerprint",
    "call", "expires_at", "is_trusted", "at", "created_at", "actor", "step", "window", "idem", "undo_idem",
)  # fmt: skip


class Place(Value):
    """Where on the timeline an effect happens, and by whom."""

    at: int = 0  # number of the newest entry
    actor: str = "unknown"
    step: str = ""
    window: str = ""
    run: str = ""  # what budgets are counted by


class Charge(Value):
    """What an effect takes from a budget. The cap belongs to policy; the sum is kept here."""

    name: str
    amount: float
    cap: float


class Journal:
    """The effects of one workspace."""

    def __init__(
        self,
        log: EffectLog,
        workspace: str,
        *,
        clock: Callable[[], int],
        process: tuple[int, int],
        is_alive: Callable[[int, int], bool],
    ) -> None:
        """`process` is (pid, when it was born) of who acts; `is_alive` tells whether such a process still runs."""
        self.log, self.workspace = log, workspace
        self._clock, self._process, self._is_alive = clock, process, is_alive

    # -- forward

    def begin(
        self, draft: EffectDraft, place: Place, *, charges: Sequence[Charge] = (), is_fork: bool = False
    ) -> Effect:
        """Make the intent durable; the effect may leave when this returns.

        Raises Repeated if the effect was done before under the same call id, or survived a rollback and is now asked
        for again (`is_fork`: send it all the same). Raises Refused if a budget is used up.
        """
        return self._create(states.INTENT, draft, place, charges, is_fork)

    def hold(self, draft: EffectDraft, place: Place, *, charges: Sequence[Charge] = (), id: str = "") -> Effect:
        """Keep it back until a person releases or cancels it. `id`: one of `new_id`, if it must be known before."""
        return self._create(states.HELD, draft, place, charges, False, id)

    def record(
        self,
        draft: EffectDraft,
        place: Place,
        *,
        after: Json | None = None,
        reply: Json | None = None,
        covered: str = "",
    ) -> Effect:
        """Note an effect that has happened already. `covered`: why all that it changed comes back with the files."""
        with self.log.transaction():
            effect = self._create(states.INTENT, draft, place, (), True)
            if covered:
                self.cover(effect.id)
            return self.finish(effect.id, states.DONE, detail=covered, after=after, reply=reply)

    def finish(
        self,
        id: str,
        state: str,
        *,
        detail: str = "",
        after: Json | None = None,
        reply: Json | None = None,
        **facts: object,
    ) -> Effect:
        """Write the outcome down: done, refused or unknown. `facts` that only the answer could tell are frozen now:
        inverse, cls, resource, depends, expires_at, rule, request. None says nothing, but for the inverse: there is
        none, whatever the intent expected."""
        assert state in (states.DONE, states.REFUSED, states.UNKNOWN)
        body: dict[str, object] = {k: value for k, value in facts.items() if value is not None or k == "inverse"}
        if after is not None:
            body["after"] = after
        if reply is not None:
            body["reply"] = reply

        def may(effect: Effect) -> bool:
            if effect.state in (states.INTENT, states.UNKNOWN):
                return True
            # what a look afterwards tells may be added, as long as nobody began to undo it
            return effect.state == state == states.DONE and effect.undo_state in ("", states.WANTED)

        return self._change(id, state, {**body, "detail": detail}, may)

    # -- held effects

    def release(self, id: str) -> Effect:
        """Begin to let a held effect go: from now on it may be gone."""
        return self._change(id, "released", self._me(), lambda e: e.state == states.HELD)

    def hold_again(self, id: str, detail: str) -> Effect:
        """Back to held: it is certain that nothing left."""
        return self._change(id, "held again", {"detail": detail}, lambda e: e.state == states.INTENT)

    def note(self, id: str, after: Json) -> Effect:
        """Add to a held effect what there is of it in the world already, such as a draft."""
        return self._change(id, "noted", {"after": after}, lambda e: e.state == states.HELD)

    def cancel(self, id: str, detail: str = "") -> Effect:
        """Drop a held effect: it never happens."""
        return self._change(id, states.CANCELED, {"detail": detail}, lambda e: e.state == states.HELD)

    # -- undo

    def start_undo(self, id: str) -> Effect:
        """Claim the undo of an effect. Raises Refused if it is undone, kept, or being undone by a live process."""

        def may(effect: Effect) -> bool:
            if not effect.may_have_happened or effect.undo_state in states.SETTLED:
                return False
            return effect.undo_state != states.UNDOING or self.is_orphaned(effect)

        return self._change(id, states.UNDOING, {**self._me(), "undo_at": self._clock()}, may)

    def end_undo(self, id: str, undo_state: str, detail: str = "") -> Effect:
        """Write down how the undo ended."""
        assert undo_state in (states.UNDONE, *states.SURVIVED)
        return self._change(id, undo_state, {"detail": detail}, lambda e: e.undo_state == states.UNDOING)

    def survive(self, id: str, undo_state: str, detail: str) -> Effect:
        """Note that a rollback wanted it undone and could not begin to."""
        assert undo_state in states.SURVIVED
        return self._change(id, undo_state, {"detail": detail}, lambda e: e.is_open and e.undo_state != undo_state)

    def keep(self, id: str) -> Effect:
        """Accept an effect: its inverse is never run."""
        return self._change(
            id,
            states.KEPT,
            {},
            lambda e: e.state != states.HELD and e.undo_state not in (*states.SETTLED, states.UNDOING),
        )

    def cover(self, id: str) -> Effect:
        """Note, before it leaves, that all it changes is in the checkpoints: there is no inverse, files come back."""
        return self._change(id, states.COVERED, {}, lambda e: e.state == states.INTENT and not e.undo_state)

    def uncover(self, id: str, detail: str) -> Effect:
        """Note that the checkpoint after it does not hold all of it after all: a person has to look."""
        return self._change(id, states.MANUAL, {"detail": detail}, lambda e: e.undo_state == states.COVERED)

    def remap(self, id: str, old: str, new: str) -> None:
        """What was called old before an undo made it anew is called new since."""
        with self.log.transaction():
            self.log.append(self.workspace, id, "remapped", dumps({"old": old, "new": new}))

    def is_orphaned(self, effect: Effect) -> bool:
        """Whether the process that was at it is gone."""
        return not self._is_alive(effect.pid, effect.born)

    # -- reading

    def get(self, id: str) -> Effect:
        """The effect, proven. Raises BadRef, StoreCorrupted."""
        rows = self.log.rows_of(self.workspace, id)
        if not rows:
            raise BadRef(f"there is no effect '{id}'", hints=["see them: reprieve effects"])
        return self._seen(fold(rows))

    def find(self, text: str) -> Effect:
        """By id or a unique beginning of one."""
        found = [id for id in self.log.ids(self.workspace) if id.startswith(text)] if text else []
        if len(found) > 1 and text not in found:
            raise BadRef(f"'{text}' may be any of {len(found)} effects", details=found[:10])
        return self.get(text if text in found or not found else found[0])

    def effects(
        self,
        *,
        since: int = 0,
        is_open: bool = False,
        windows: Sequence[str] = (),
        states: Sequence[str] = (),
        oldest_first: bool = False,
    ) -> Iterator[Effect]:
        """Effects begun at or after that number of the timeline, newest first; each proven; read in pages."""
        where: dict[str, Sequence[str]] = {}
        if windows:
            where["window"] = windows
        if states:
            where["state"] = states
        page: list[str] = []
        for id in self.log.ids(self.workspace, since=since, is_open=is_open, where=where, oldest_first=oldest_first):
            page.append(id)
            if len(page) == 100:
                yield from self._many(page)
                page = []
        yield from self._many(page)

    def remapped(self) -> dict[str, str]:
        """Names that an undo changed: old → new."""
        found: dict[str, str] = {}
        for (body,) in self.log.db.query(
            "SELECT body FROM rows WHERE workspace = ? AND kind = 'remapped' ORDER BY seq", (self.workspace,)
        ):
            names = _object(body)
            found[str(names["old"])] = str(names["new"])
        return found

    # -- inside

    def _create(
        self,
        state: str,
        draft: EffectDraft,
        place: Place,
        charges: Sequence[Charge],
        is_fork: bool,
        id: str = "",
    ) -> Effect:
        id = id or new_id()
        facts: dict[str, object] = {
            **draft.as_dict(),
            **place.as_dict(),
            "created_at": self._clock(),
            "idem": _key(self.workspace, id, "do"),
            "undo_idem": _key(self.workspace, id, "undo"),
            **self._me(),
        }
        with self.log.transaction():
            self._refuse_repeats(draft, is_fork=is_fork)
            for charge in charges:
                self._charge(place.run, charge)
            row = self.log.append(self.workspace, id, state, dumps(facts, is_compact=True))
            self.log.put_index(
                self.workspace,
                row.seq,
                id=id,
                at=place.at,
                window=place.window,
                resource=draft.resource,
                fingerprint=draft.fingerprint,
                call=draft.call,
                state=state,
                undo_state="",
                is_open=1,
            )
        return fold([row])

    def _refuse_repeats(self, draft: EffectDraft, *, is_fork: bool) -> None:
        if draft.call:
            for id in self.log.ids(self.workspace, where={"call": (draft.call,)}):
                earlier = self.get(id)
                if earlier.state not in (states.REFUSED, states.CANCELED):
                    raise Repeated(f"call '{draft.call}' was made before", effect=earlier.id, state=earlier.state)
        if draft.fingerprint and not is_fork:
            for count, id in enumerate(self.log.ids(self.workspace, where={"fingerprint": (draft.fingerprint,)})):
                earlier = self.get(id)
                if earlier.may_have_happened and earlier.undo_state in states.SURVIVED:
                    raise Repeated(
                        f"'{earlier.description}' survived a rollback that could not undo it, and is asked for again",
                        effect=earlier.id,
                        state=earlier.state,
                        hints=[
                            f"see it: reprieve show {earlier.id}",
                            f"accept it as done, so that the same may be done anew: reprieve keep {earlier.id}",
                        ],
                    )
                if count == _SCANNED:
                    break

    def _charge(self, run: str, charge: Charge) -> None:
        # In the transaction of the intent: two calls at once cannot both take the last of a budget
        key = (self.workspace, run, charge.name)
        rows = self.log.db.query("SELECT used FROM spent WHERE workspace = ? AND run = ? AND name = ?", key)
        used = rows[0][0] if rows else 0.0
        if used + charge.amount > charge.cap:
            raise Refused(
                f"the budget '{charge.name}' is used up: {used:g} of {charge.cap:g}, {charge.amount:g} more is wanted",
                hints=[f"ask the user: the setting budget.{charge.name.split()[0]} is theirs to raise"],
                data={"budget": charge.name, "used": used, "cap": charge.cap},
            )
        self.log.db.execute("INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?)", (*key, used + charge.amount))

    def _change(self, id: str, kind: str, body: Mapping[str, object], may: Callable[[Effect], bool]) -> Effect:
        with self.log.transaction():
            rows = self.log.rows_of(self.workspace, id)
            if not rows:
                raise BadRef(f"there is no effect '{id}'", hints=["see them: reprieve effects"])
            now = fold(rows)
            if not may(now):
                raise Refused(
                    f"'{now.description or id}' is {now.undo_state or now.state}: it can't become {kind}",
                    data={"effect": id, "state": now.state, "undo_state": now.undo_state},
                )
            rows.append(self.log.append(self.workspace, id, kind, dumps(dict(body), is_compact=True)))
            after = fold(rows)
            self.log.put_index(
                self.workspace,
                after.seq,
                state=after.state,
                undo_state=after.undo_state,
                is_open=int(after.is_open),
                resource=after.resource,
            )
        return after

    def _many(self, ids: Sequence[str]) -> Iterator[Effect]:
        for rows in self.log.many_rows(self.workspace, ids).values():
            yield self._seen(fold(rows))

    def _seen(self, effect: Effect) -> Effect:
        """An intent whose process has died may or may not have left."""
        if effect.state == states.INTENT and self.is_orphaned(effect):
            return effect.replace(
                state=states.UNKNOWN, detail=effect.detail or "its process ended before the answer came"
            )
        return effect

    def _me(self) -> dict[str, object]:
        return {"pid": self._process[0], "born": self._process[1]}


def fold(rows: Sequence[Record]) -> Effect:
    """What an effect is after these rows."""
    first = _object(rows[0].body)
    facts: dict[str, object] = {name: first.get(name) for name in _FACTS}
    now: dict[str, object] = {
        "state": rows[0].kind,
        "undo_state": "",
        "detail": "",
        "after": None,
        "reply": None,
        "undo_at": 0,
        "pid": first["pid"],
        "born": first["born"],
    }
    for row in rows[1:]:
        body = _object(row.body)
        if row.kind == "remapped":
            continue
        if row.kind == "released":
            now.update(state=states.INTENT, **body)
        elif row.kind == "held again":
            now.update(state=states.HELD, **body)
        elif row.kind == "noted":
            now.update(body)
        elif row.kind in (states.DONE, states.REFUSED, states.UNKNOWN, states.CANCELED):
            now.update(state=row.kind)
            for name, value in body.items():
                (facts if name in _FACTS else now)[name] = value
        else:
            now.update(body, undo_state=row.kind)
    depends = facts["depends"]
    facts["depends"] = tuple(depends) if isinstance(depends, (list, tuple)) else ()
    return Effect(id=rows[0].effect, seq=rows[0].seq, workspace=rows[0].workspace, **facts, **now)  # type: ignore[arg-type]


def _key(workspace: str, id: str, direction: str) -> str:
    from uuid import NAMESPACE_URL, uuid5

    return str(uuid5(NAMESPACE_URL, f"reprieve:{workspace}/{id}/{direction}"))


def _object(text: str) -> dict[str, object]:
    value = loads(text)
    assert isinstance(value, dict)
    return value
