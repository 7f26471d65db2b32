"""What is known at one point of a script: the folder it is in, and the values of variables."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from reprieve.policy.places import Places


class State:
    """The folder and the variables at one point of a script."""

    __slots__ = ("is_runnable", "launcher", "places", "variables")

    def __init__(self, places: Places, variables: dict[str, str | None]) -> None:
        self.places, self.variables = places, variables
        self.launcher: tuple[str, ...] = ()  # what the script itself was started through
        self.is_runnable = True

    def copy(self) -> State:
        other = State(self.places, dict(self.variables))
        other.launcher, other.is_runnable = self.launcher, self.is_runnable
        return other

    def in_background(self) -> State:
        """A copy for a command that may end later than its line: a look after the line shows nothing for certain."""
        other = self.copy()
        other.is_runnable = False
        return other

    def forget(self, names: Iterable[str] | None = None) -> None:
        """These variables (all: None) may hold anything from here on."""
        for name in (*self.variables, "HOME", "PWD", "IFS") if names is None else tuple(names):
            self.variables[name] = None

    def merge(self, other: State) -> None:
        """Either this or the other happened."""
        for name in {*self.variables, *other.variables}:
            if self.variables.get(name, "\0") != other.variables.get(name, "\0"):
                self.variables[name] = None
        cwds = tuple(dict.fromkeys((*self.places.cwds, *other.places.cwds)))
        self.places = self.places.replace(cwds=cwds if len(cwds) <= 8 else (None,))
