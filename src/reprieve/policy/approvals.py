"""What waits for a person's yes. Bound to the hash of the exact action, for one use, for a limited time.

An agent can ask, list and wait; deciding is `decide`, which front ends offer only over a channel that the agent does
not hold. Nothing that an agent passes along (a flag, an old id, a file in the tree) stands for an approval.
"""

from __future__ import annotations

from reprieve.errors import BadRef, Refused
from reprieve.model.value import Value
from reprieve.store.chain import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.store.effectlog import EffectLog

PENDING, APPROVED, DENIED, USED = "pending", "approved", "denied", "used"
LIFE_NS = 3600 * 10**9  # an hour to decide, and to make use of it
_COLUMNS = "id, hash, action, class, created_at, expires_at, state"


class Approval(Value):
    """One question for a person."""

    id: str
    hash: str
    action: str  # in full, as text for people
    cls: str
    created_at: int
    expires_at: int
    state: str


class Approvals:
    """Those of one workspace."""

    def __init__(self, log: EffectLog, workspace: str, *, clock: Callable[[], int]) -> None:
        self._log, self._workspace, self._clock = log, workspace, clock

    def ask(self, hash: str, action: str, cls: str) -> Approval:
        """The open question about this action; asked now if there is none."""
        with self._log.transaction():
            for found in self._all(" AND hash = ? AND state = 'pending'", hash):
                return found
            now = self._clock()
            asked = Approval(new_id(), hash, action, cls, now, now + LIFE_NS, PENDING)
            self._log.db.execute(
                "INSERT INTO approvals (id, workspace, hash, action, class, created_at, expires_at, state, mac)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (asked.id, self._workspace, hash, action, cls, now, asked.expires_at, PENDING, self._mac(asked)),
            )
        return asked

    def pending(self) -> list[Approval]:
        """What waits, oldest first."""
        return list(self._all(" AND state = 'pending'"))

    def get(self, id: str) -> Approval:
        """By id or a unique beginning of one. Raises BadRef."""
        found = [each for each in self._all("") if each.id == id] or [
            each for each in self._all("") if id and each.id.startswith(id)
        ]
        if len(found) != 1:
            what = "nothing waits" if not found else "more than one thing waits"
            raise BadRef(f"{what} under '{id}'", hints=["see what waits: reprieve approvals"])
        return found[0]

    def decide(self, id: str, *, is_approved: bool) -> Approval:
        """A person's answer. Raises Refused if it was decided already."""
        with self._log.transaction():
            found = self.get(id)
            if found.state != PENDING:
                raise Refused(f"'{found.id}' was {found.state} already")
            return self._set(found, APPROVED if is_approved else DENIED)

    def has(self, hash: str) -> bool:
        """Whether a person has approved exactly this action, and nobody has made use of it."""
        return bool(self._all(" AND hash = ? AND state = 'approved'", hash))

    def use(self, hash: str) -> bool:
        """Take the approval of exactly this action, if a person gave one; it can't be taken twice."""
        with self._log.transaction():
            for found in self._all(" AND hash = ? AND state = 'approved'", hash):
                self._set(found, USED)
                return True
        return False

    def was_used(self, hash: str) -> bool:
        """Whether the newest question about this action was answered with a yes that was made use of."""
        found = self._all(" AND hash = ?", hash)
        return bool(found) and found[-1].state == USED

    def _set(self, approval: Approval, state: str) -> Approval:
        changed = approval.replace(state=state)
        self._log.db.execute(
            "UPDATE approvals SET state = ?, mac = ? WHERE id = ?", (state, self._mac(changed), approval.id)
        )
        return changed

    def _all(self, where: str, *values: object) -> list[Approval]:
        """Those that have not expired and are what was written; a planted one counts for nothing."""
        rows = self._log.db.query(
            f"SELECT {_COLUMNS}, mac FROM approvals WHERE workspace = ? AND expires_at > ?{where} ORDER BY created_at",
            (self._workspace, self._clock(), *values),
        )
        found = [(Approval(*row[:-1]), row[-1]) for row in rows]
        return [approval for approval, mac in found if mac == self._mac(approval)]

    def _mac(self, approval: Approval) -> bytes:
        values = (self._workspace, *approval.as_dict().values())
        return self._log.sign(b"approval", *(str(value).encode() for value in values))
