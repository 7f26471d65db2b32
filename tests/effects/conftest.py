"""A workspace with a journal, and an HTTP API to do things to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.app.finding import open_workspace
from reprieve.app.journals import open_journal
from reprieve.app.workspace import Workspace
from reprieve.effects.journal import Journal
from reprieve.gateways import python_http
from support.api import Api, serving
from support.shop import Shop, open_shop


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        yield api


@pytest.fixture
def ws(project: Path) -> Iterator[Workspace]:
    with open_workspace(str(project), create=True) as ws:
        ws.checkpoint("base")
        yield ws


@pytest.fixture
def journal(ws: Workspace) -> Iterator[Journal]:
    journal = open_journal(ws)
    yield journal
    journal.log.close()


@pytest.fixture
def shop() -> Iterator[Shop]:
    with open_shop() as shop:
        yield shop


@pytest.fixture
def recorded(ws: Workspace, project: Path) -> Iterator[Workspace]:
    """The HTTP calls of this process are recorded on the project."""
    python_http.install(project)
    yield ws
    python_http.uninstall()
