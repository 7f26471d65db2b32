"""kill -9 at every call that changes a disk, before it and after it, in every command that changes something.

After each kill the next command finds the tree as it was or as it should be, never a mix; every checkpoint gives its
tree back; the command works again; redo works; no lock is stale; nothing is left behind. The kill is proved by the exit
status and by the call that it struck.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from support.forkserver import Fault, ForkServer
from support.scenes import SCENES
from support.sweep import Tally, count, points_of, sweep

SHARDS = {
    "rollback": 6,
    "redo": 6,
    "revert": 3,
    "first": 3,
    "incremental": 2,
    "promised": 1,
    "gc": 2,
    "prune": 2,
    "forget": 2,
    "init": 1,
}
LIMIT = int(os.environ.get("REPRIEVE_POINTS", "400"))  # of one command and mode; beyond that evenly sampled
KILLS = ("kill", "kill_after")

Counted = Callable[[Tally], None]


def shards_of(*names: str) -> list[object]:
    return [
        pytest.param(name, mode, shard, id=f"{name}-{mode}-{shard}")
        for name in names
        for mode in KILLS
        for shard in range(SHARDS[name])
    ]


def kill(server: ForkServer, name: str, mode: str, shard: int) -> Tally:
    scene, fault = SCENES[name], Fault(mode)
    total = count(server, scene, fault).seen
    points = points_of(total, shard=shard, shards=SHARDS[name], limit=LIMIT)
    return sweep(server, scene, fault, points)


@pytest.mark.parametrize(("name", "mode", "shard"), shards_of("init"))
def test_C01_C08_killed_at_every_call_of_init(
    server: ForkServer, name: str, mode: str, shard: int, counted: Counted
) -> None:
    """The next `init` completes; there is no half store."""
    counted(kill(server, name, mode, shard))


@pytest.mark.parametrize(("name", "mode", "shard"), shards_of("first"))
def test_C02_C08_killed_at_every_call_of_the_first_checkpoint(
    server: ForkServer, name: str, mode: str, shard: int, counted: Counted
) -> None:
    """What was not acknowledged is absent or whole; scratch files are gone after the next command."""
    counted(kill(server, name, mode, shard))


@pytest.mark.parametrize(("name", "mode", "shard"), shards_of("incremental"))
def test_C03_C08_killed_at_every_call_of_a_later_checkpoint(
    server: ForkServer, name: str, mode: str, shard: int, counted: Counted
) -> None:
    """Older checkpoints are untouched."""
    counted(kill(server, name, mode, shard))


@pytest.mark.parametrize(("name", "mode", "shard"), shards_of("promised"))
def test_C03_C08_killed_at_every_call_while_a_promise_is_kept(
    server: ForkServer, name: str, mode: str, shard: int, counted: Counted
) -> None:
    """The entry is on the timeline once, with the tree of the one before it."""
    counted(kill(server, name, mode, shard))


@pytest.mark.parametrize(("name", "mode", "shard"), shards_of("rollback"))
def test_C04_C08_killed_at_every_call_of_rollback(
    server: ForkServer, name: str, mode: str, shard: int, counted: Counted
) -> None:
    """The tree is the target or the start after the next command."""
    counted(kill(server, name, mode, shard))


@pytest.mark.parametrize(("name", "mode", "shard"), shards_of("revert", "redo"))
def test_C05_C08_killed_at_every_call_of_revert_and_redo(
    server: ForkServer, name: str, mode: str, shard: int, counted: Counted
) -> None:
    """As C04."""
    counted(kill(server, name, mode, shard))


@pytest.mark.parametrize(("name", "mode", "shard"), shards_of("gc", "prune", "forget"))
def test_C06_C08_G02_killed_at_every_call_of_gc_prune_and_forget(
    server: ForkServer, name: str, mode: str, shard: int, counted: Counted
) -> None:
    """No live object is lost at any point; the next one ends it."""
    counted(kill(server, name, mode, shard))


def test_the_kill_sweep_has_at_least_2000_points(server: ForkServer) -> None:
    """The promise of the sweeps above, counted: a command that lost its calls would make them pass for nothing."""
    totals = {name: count(server, SCENES[name], Fault()).seen for name in SHARDS}
    swept = {name: len(points_of(total, shard=0, shards=1, limit=LIMIT)) for name, total in totals.items()}
    print("calls:", totals, "kill points:", len(KILLS) * sum(swept.values()))
    assert len(KILLS) * sum(swept.values()) >= 2000
