"""The order of writes, syncs, renames and commits, read off a trace of the real command (C12).

A missing directory sync is seen by neither kill nor power cut on ext4, because the next commit of the file system's own
journal takes it along; other file systems differ. So the order itself is checked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import SRC, worlds
from support.forkserver import ForkServer
from support.orderlint import TRACED, lint
from support.scenes import SCENES
from support.site import Site

SUPPORT = Path(__file__).resolve().parent.parent / "support"
MAIN = """
import sys
if sys.argv[1]:
    import plants
    plants.plant(sys.argv[1])
from reprieve.cli.main import main
sys.exit(main(sys.argv[2:]))
"""

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="the order lint needs strace")


@pytest.fixture
def apart(server: ForkServer, tmp_path: Path) -> Iterator[Site]:
    """The store on another file system than the tree where possible, so that a sync of one is not one of the other."""
    with tempfile.TemporaryDirectory(dir=worlds.scratch_base()) as other, Site(server, base=tmp_path) as site:
        site.home = Path(other) / "home"
        yield site


def traced(site: Site, scene: str, plant: str = "") -> tuple[int, int, list[str]]:
    facts = SCENES[scene].prepare(site)
    known = site.base / "trace"
    strace = ["strace", "-f", "-y", "-qq", "-s", "4096", "-o", str(known), "-e", f"trace={TRACED}"]
    env = {**os.environ, **site.env(), "PYTHONPATH": f"{SRC}{os.pathsep}{SUPPORT}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*strace, sys.executable, "-c", MAIN, plant, *facts.argv],
        cwd=site.tree,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    return lint(known, site.home, site.tree)


@pytest.mark.parametrize(
    "scene", ("init", "first", "incremental", "rollback", "revert", "redo", "gc", "prune", "forget")
)
def test_C12_nothing_is_taken_for_durable_before_it_is(apart: Site, scene: str) -> None:
    """0 violations, and the lint has seen the commits and the acknowledgement."""
    commits, acks, violations = traced(apart, scene)
    assert violations == []
    assert commits >= (2 if scene in ("rollback", "revert", "redo") else 1) and acks >= 1


@pytest.mark.parametrize(
    ("plant", "scene"), (("no fsync", "first"), ("no fsync", "rollback"), ("no sync of the tree", "rollback"))
)
def test_C12_a_missing_sync_is_found(apart: Site, plant: str, scene: str) -> None:
    """The planted bug breaks the order, and the lint says so."""
    assert traced(apart, scene, plant)[2] != []
