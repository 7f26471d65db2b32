"""What tests share besides fixtures; import it as `from support import Cli`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SRC = Path(__file__).resolve().parent.parent.parent / "src"
OLD = 1_700_000_000_123_456_789  # ns; far enough in the past that no timestamp of the project is racy


@dataclass(frozen=True)
class Result:
    """What one run of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout; fails when stdout is anything else."""
        return json.loads(self.out)


class Cli(Protocol):
    """Run `reprieve ARGS…`; with check, a non-zero exit fails the test with everything it said."""

    def __call__(
        self,
        *args: str | bytes,
        cwd: Path | str | None = None,
        input: str | None = None,
        env: Mapping[str, str | None] | None = None,
        check: bool = True,
        timeout: float = 120,
    ) -> Result: ...


def age(root: Path, ns: int = OLD) -> None:
    """Give everything under root the same old mtime, so that no timestamp is racy."""
    for path in [*root.rglob("*"), root]:
        os.utime(path, ns=(ns, ns), follow_symlinks=False)
