"""Ask a driver, whose code may be anybody's: whatever it raises or answers, a rollback goes on and names the effect."""

from __future__ import annotations

from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.errors import Refused, ReprieveError
from reprieve.model.effect import DONE, MANUAL, REFUSED, SURVIVED, UNDONE, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from reprieve.effects.driver import Driver
    from reprieve.model.effect import Effect


class Guarded:
    """A driver that raises nothing but errors of ours, such as a store that fails."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def says(self, effect: Effect) -> str:
        try:
            return str(self._driver.says(effect))
        except ReprieveError:
            raise
        except Exception as e:  # noqa: BLE001 - not our code
            return f"undo '{effect.description}', which can't be described ({_told(e)})"

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        try:
            found = self._driver.check(effect, names)
            if found.state in (READY, ALREADY, CHANGED, UNCLEAR):
                return found
            return Check(UNCLEAR, f"what undoes it answered with '{found.state}' when it was to look")
        except Refused as e:
            return Check(UNCLEAR, e.message)
        except ReprieveError:
            raise
        except Exception as e:  # noqa: BLE001 - as above
            return Check(UNCLEAR, f"what undoes it can't look ({_told(e)})")

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        try:
            found = self._driver.undo(effect, names)
            if found.undo_state in (UNDONE, *SURVIVED):
                return found
            return Outcome(MANUAL, f"whether it is undone is not known: its undo answered with '{found.undo_state}'")
        except Refused as e:
            return Outcome(MANUAL, f"whether it is undone is not known: {e.message}")
        except ReprieveError:
            raise
        except Exception as e:  # noqa: BLE001 - as above; it may have come half-way
            return Outcome(MANUAL, f"whether it is undone is not known: its undo failed ({_told(e)})")

    def resolve(self, effect: Effect) -> str:
        try:
            found = self._driver.resolve(effect)
        except ReprieveError:
            raise
        except Exception:  # noqa: BLE001 - as above; that is what "unknown" says
            return UNKNOWN
        return found if found in (DONE, REFUSED) else UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        try:
            return bool(self._driver.may_repeat(effect))
        except ReprieveError:
            raise
        except Exception:  # noqa: BLE001 - as above; who can't say must not
            return False


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
