"""Around a command that is about to run: record its effects, and what became of them."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from reprieve.app.commands import Watched
    from reprieve.app.workspace import Workspace
    from reprieve.policy.catalog import Catalog


class Recording:
    """`with` block around the command; `exit_code` is set in it."""

    def __init__(self, ws: Workspace, argv: Sequence[str], *, holds_mail: bool = False) -> None:
        """`holds_mail`: what mail programs are given is held, and so it is recorded as mail."""
        self._ws, self._argv, self._holds_mail = ws, argv, holds_mail
        self._rules: Catalog | None = None
        self._watched: tuple[Watched, ...] = ()
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        from reprieve.app.commands import begin, catalog_of

        self._rules, cwd = catalog_of(), os.getcwd()
        known = begin(self._ws, self._argv, cwd=cwd, rules=self._rules)
        self._watched = (known,) if known is not None else tuple(self._inside(self._rules, cwd))
        return self

    def _inside(self, rules: Catalog, cwd: str) -> Iterator[Watched]:
        """Record what the catalog has no rule for, or what a shell or wrapper starts."""
        import shlex

        from reprieve.app.hook_words import reaches_out

        text = shlex.join(self._argv)
        if not reaches_out(text):
            return
        from reprieve.app.holding import NAMES
        from reprieve.app.irreversible import begin, judge_line, to_record

        held = NAMES if self._holds_mail else ()
        verdict = judge_line(self._ws, text, cwd=cwd, rules=rules)
        for command in to_record(verdict, text, cwd=cwd):
            if command.shown[:1] and command.shown[0] in held:  # by its full name it would not be held
                continue
            watched = begin(self._ws, command, rules=rules)
            if watched is not None:
                yield watched

    def __exit__(self, *_: object) -> None:
        from reprieve.app.commands import finish

        for watched in self._watched:
            assert self._rules is not None
            finish(self._ws, watched, exit_code=self.exit_code, rules=self._rules)
