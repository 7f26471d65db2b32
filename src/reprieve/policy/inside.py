"""Read on inside a wrapper: what `judge_program` may ask of the reader of a command line."""

from __future__ import annotations

from reprieve.policy.judge import judge_program
from reprieve.policy.scene import opaque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from reprieve.policy.scene import Judgement, Scene, Stdin
    from reprieve.policy.state import State
    from reprieve.policy.words import Word

    class Reader(Protocol):
        """Reads a command line."""

        def note(
            self, argv: Sequence[str | None], found: Judgement, *, cwd: str = "", variables: Mapping[str, str] | None
        ) -> None:
            """Write a judgement down."""

        def text(self, text: str, state: State, stdin: Stdin, *, depth: int) -> None:
            """Read a script."""


MAX_DEPTH = 12


class Inside:
    """The reader at one place of its text."""

    __slots__ = ("depth", "reader", "state")

    def __init__(self, reader: Reader, state: State, depth: int) -> None:
        self.reader, self.state, self.depth = reader, state, depth

    def note(self, argv: Sequence[str | None], judgement: Judgement) -> None:
        self.reader.note(argv, judgement, cwd=self.state.places.here, variables=self.state.exported)

    def command(self, words: Sequence[Word], scene: Scene) -> None:
        """An argument list that a wrapper runs."""
        if self.depth > MAX_DEPTH:
            self.note([word.text for word in words], opaque("too deeply nested to be read"))
            return
        inner = self.state.copy()
        inner.places = scene.places
        judge_program(words, scene, Inside(self.reader, inner, self.depth + 1))

    def text(self, text: str, scene: Scene, *, is_here: bool) -> None:
        """Text that a wrapper hands to a shell; `is_here`: this very shell (eval)."""
        inner = self.state if is_here else self.state.copy()
        if not is_here:
            inner.places = scene.places
            inner.variables = dict.fromkeys(inner.variables)
            inner.launcher, inner.is_runnable = scene.launcher, scene.is_runnable
        self.reader.text(text, inner, scene.stdin, depth=self.depth + 1)
