"""What is known at one point of a script: the folder it is in, and the values of variables."""

from __future__ import annotations

from reprieve.policy.variables import is_dangerous

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from reprieve.policy.places import Places


class State:
    """The folder and the variables at one point of a script."""

    __slots__ = ("exported", "is_runnable", "launcher", "places", "variables")

    def __init__(self, places: Places, variables: dict[str, str | None]) -> None:
        self.places, self.variables = places, variables
        self.launcher: tuple[str, ...] = ()  # what the script itself was started through
        self.is_runnable = True
        self.exported: dict[str, str] = {}  # what the script sets in the environment of the programs after it

    def copy(self) -> State:
        other = State(self.places, dict(self.variables))
        other.launcher, other.is_runnable = self.launcher, self.is_runnable
        other.exported = dict(self.exported)
        return other

    def export(self, names: Iterable[str]) -> None:
        """Programs get these variables from here on. An inverse does if their values are known, and harmless."""
        for name in names:
            value = self.variables.get(name)
            if value is None or is_dangerous(name):
                self.is_runnable = False
            else:
                self.exported[name] = value

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
        self.is_runnable = self.is_runnable and other.is_runnable and self.exported == other.exported
        for name in {*self.variables, *other.variables}:
            if self.variables.get(name, "\0") != other.variables.get(name, "\0"):
                self.variables[name] = None
        cwds = tuple(dict.fromkeys((*self.places.cwds, *other.places.cwds)))
        self.places = self.places.replace(cwds=cwds if len(cwds) <= 8 else (None,))
