"""Whether code may have changed is told by its folders, and by those above them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprieve.cli.helper.folders import Folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the helper is Linux's")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """`lib/link/code`, where `link` leads to a folder beside it."""
    (tmp_path / "lib" / "one" / "code").mkdir(parents=True)
    (tmp_path / "lib" / "two" / "code").mkdir(parents=True)
    (tmp_path / "lib" / "link").symlink_to("one")
    (tmp_path / "lib" / "link" / "code" / "m.py").write_text("1\n")
    return tmp_path / "lib" / "link" / "code"


@pytest.fixture
def folders(site: Path) -> Iterator[Folders]:
    found = Folders([str(site)])
    assert found.are_quiet()
    yield found
    found.close()


def lead_elsewhere(site: Path) -> None:
    """As an upgrade does that keeps both."""
    new = site.parent.parent / "new"
    new.symlink_to("two")
    os.rename(new, site.parent)


@pytest.mark.parametrize(
    "change",
    [
        lambda site: (site / "m.py").write_text("22\n"),
        lambda site: os.utime(site / "m.py", (0, 0)),
        lambda site: (site / "n.py").touch(),
        lambda site: os.rename(site, site.parent / "old"),
        lambda site: os.rename(site.parent.parent, site.parent.parent.parent / "old"),
        lead_elsewhere,
    ],
    ids=["written", "touched", "added", "moved", "moved-above", "link-above"],
)
def test_a_change_is_told_once(folders: Folders, site: Path, change: Callable[[Path], object]) -> None:
    change(site)
    assert not folders.are_quiet()
    assert folders.are_quiet()


def test_what_happens_beside_them_does_not_count(folders: Folders, site: Path) -> None:
    (site.parent.parent / "two" / "code" / "m.py").write_text("2\n")
    assert folders.are_quiet()
