"""A harness that finds nothing may be blind: bugs planted into the real engine must be found by the sweeps."""

from __future__ import annotations

import pytest

from support.forkserver import Fault, ForkServer
from support.scenes import SCENES
from support.sweep import count, points_of, sweep

# plant, scene, how many points at most (evenly spread)
PLANTED = [
    ("blob in place", "first", 70),
    ("row before blob", "incremental", 70),
    ("lost redo", "rollback", 30),
    ("followed symlink", "rollback", 3),
    ("no intent", "rollback", 40),
    ("restore in place", "rollback", 60),
]


@pytest.mark.parametrize(("name", "scene", "limit"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_planted_bug_is_found(server: ForkServer, name: str, scene: str, limit: int) -> None:
    """The sweep that passes on the engine as it is fails on the engine with the bug."""
    total = count(server, SCENES[scene], Fault()).seen
    # the bug's own calls lie late: look there first, so that a find comes soon
    points = points_of(total, shard=0, shards=1, limit=limit)[::-1]
    tally = sweep(server, SCENES[scene], Fault("kill"), points, plant=name, stop_after=1)
    print(tally, *tally.unsound[:1])
    assert tally.fired >= tally.points - 3  # a bug may also save a few calls at the end
    assert tally.unsound, f"{name} was not found at {tally.points} points"
