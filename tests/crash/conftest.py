"""The warm engine that crash tests fork, and the counting of what the sweeps did (support/summary.py prints it)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator

import pytest

from support import SRC
from support.forkserver import ForkServer
from support.site import Site
from support.sweep import Tally


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """The engine, imported once; every command is a fork of it."""
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("fault injection needs Linux (LD_PRELOAD) and gcc")
    server = ForkServer(paths=[str(SRC)])
    yield server
    server.close()


@pytest.fixture
def site(server: ForkServer) -> Iterator[Site]:
    """An empty world."""
    with Site(server) as site:
        yield site


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Callable[[Tally], None]:
    """Check a sweep and have it counted in the summary at the end of the run."""

    def take(tally: Tally) -> None:
        record_property("sweep", f"{tally.points} {tally.fired} {len(tally.unsound)} {tally.name}")
        tally.check()

    return take
