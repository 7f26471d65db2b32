"""Undo in this process's memory: a value is put back by the function that was registered with it.

    inverse = {"kind": "memory", "target": name, "process": [pid, born]}

The values themselves stay in the process: the journal only says that there was a change. When the process is gone its
memory is gone too; the effect is then named as not undone.
"""

from __future__ import annotations

from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.model.effect import FAILED, UNDONE, UNKNOWN
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.model.effect import Effect, Json


class Kept(Value):
    """One change of an object: its value before and after, and how to set and see it."""

    target: str
    before: object
    after: object
    set: Callable[[object], None]
    get: Callable[[], object] | None = None


class Memory:
    """The changes that this process can take back, by effect."""

    def __init__(self, process: tuple[int, int]) -> None:
        self.process = process
        self._kept: dict[str, Kept] = {}

    def inverse(self, target: str) -> Json:
        return {"kind": "memory", "target": target, "process": list(self.process)}

    def keep(self, effect: str, kept: Kept) -> None:
        self._kept[effect] = kept

    def find(self, effect: str) -> Kept | None:
        return self._kept.get(effect)


class MemoryDriver:
    """Sets values back. Without a memory, or in another process, it says where the value is or was."""

    def __init__(self, memory: Memory | None, *, is_alive: Callable[[int, int], bool]) -> None:
        self._memory, self._is_alive = memory, is_alive

    def says(self, effect: Effect) -> str:
        return f"set {(effect.inverse or {}).get('target')} back, in the memory of the process that changed it"

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        kept = self._memory.find(effect.id) if self._memory is not None else None
        if kept is None:
            return Check(UNCLEAR, self._where(effect))
        if kept.get is None:
            return Check(READY)
        try:
            now = kept.get()
            if now == kept.after:
                return Check(READY)
            if now == kept.before:
                return Check(ALREADY, "it has its old value already")
        except Exception as e:  # noqa: BLE001 - the program's own function and values; what they say is the answer
            return Check(UNCLEAR, f"{kept.target} could not be looked at ({type(e).__name__}: {e})")
        return Check(CHANGED, f"{kept.target} was changed since")

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        kept = self._memory.find(effect.id) if self._memory is not None else None
        if kept is None:
            return Outcome(FAILED, self._where(effect))
        try:
            kept.set(kept.before)
        except Exception as e:  # noqa: BLE001 - the program's own function; what it says is the outcome
            return Outcome(FAILED, f"{kept.target} could not be set back ({type(e).__name__}: {e})")
        return Outcome(UNDONE, f"{kept.target} has its old value")

    def resolve(self, effect: Effect) -> str:
        return UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        return True  # setting a value twice is setting it

    def _where(self, effect: Effect) -> str:
        process = (effect.inverse or {}).get("process")
        pid, born = process if isinstance(process, list) and len(process) == 2 else (0, 0)
        if self._is_alive(int(pid), int(born)):
            return f"it is in the memory of process {pid}, which alone can set it back"
        return f"it was in the memory of process {pid}, which is gone"
