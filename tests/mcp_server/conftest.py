"""A server of ours in this process, for the tests that need no wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.mcp.server import make


@pytest.fixture
def server(project: Path) -> Any:
    """A server of the project."""
    return make(str(project))
