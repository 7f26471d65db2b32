"""Around a command that is about to run: note its effect if the catalog knows it, and what became of it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from reprieve.app.commands import Watched
    from reprieve.app.workspace import Workspace
    from reprieve.policy.catalog import Catalog


class Recording:
    """`with` block around the command; `exit_code` is set in it."""

    def __init__(self, ws: Workspace, argv: Sequence[str]) -> None:
        self._ws, self._argv = ws, argv
        self._rules: Catalog | None = None
        self._watched: Watched | None = None
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        from reprieve.app.commands import begin, catalog_of

        self._rules = catalog_of()
        self._watched = begin(self._ws, self._argv, cwd=os.getcwd(), rules=self._rules)
        return self

    def __exit__(self, *_: object) -> None:
        if self._watched is not None and self._rules is not None:
            from reprieve.app.commands import finish

            finish(self._ws, self._watched, exit_code=self.exit_code, rules=self._rules)
