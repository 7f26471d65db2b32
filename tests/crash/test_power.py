"""Power cuts: kill -9 proves nothing about what was not synced. Root only, on an ext4 image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from support import power, worlds
from support.forkserver import Fault, ForkServer
from support.scenes import SCENES, judge
from support.site import Site
from support.sweep import Tally, points_of

POINTS = {"first": 60, "incremental": 30, "rollback": 80, "redo": 30, "gc": 25, "prune": 25}

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(power.missing()), reason=power.missing() or "possible"),
]


@pytest.fixture
def disk() -> Iterator[power.Disk]:
    disk = power.Disk(worlds.scratch_base())
    yield disk
    disk.close()


def cut_at_points(
    server: ForkServer, disk: power.Disk, name: str, limit: int, plant: str = "", stop_after: int = 0
) -> Tally:
    """Kill at a call, cut the power, mount, judge; the last point ends in order and is cut right afterwards."""
    scene, tally = SCENES[name], Tally(f"{name} power cut{' with ' + plant if plant else ''}")
    disk.mount()
    site = Site(server, base=disk.mount_point)
    facts = scene.prepare(site)
    disk.unmount()
    disk.keep()
    disk.mount()
    site.plant = plant
    total = site.run(*facts.argv, fault=Fault(at=-1)).seen
    disk.unmount()
    points = [*points_of(total, shard=0, shards=1, limit=limit - 1), total + 1]
    for at in reversed(points):
        disk.restore()
        disk.mount()
        site.plant = plant
        ran = site.run(*facts.argv, fault=Fault("kill", at))
        disk.cut()
        disk.mount()
        tally.points += 1
        tally.fired += ran.code == (0 if at > total else -9)
        site.plant = ""
        fault = Fault("errno") if ran.code == 0 else Fault("kill", at)
        try:
            wrong = judge(site, scene, replace(facts, trees=dict(facts.trees)), ran, fault)
        except Exception as error:
            wrong = [f"{type(error).__name__} while judging: {error}"]
        if wrong:
            tally.unsound.append(
                "\n  ".join([f"{name}, power cut at call {at} of {total} ({ran.call} {ran.path})", *wrong])
            )
        server.dismiss_resident()  # nobody may have anything open there
        disk.unmount()
        if stop_after and len(tally.unsound) >= stop_after:
            break
    return tally


@pytest.mark.slow
@pytest.mark.parametrize("name", POINTS)
def test_C09_power_cut_at_sampled_calls(
    server: ForkServer, disk: power.Disk, name: str, counted: Callable[[Tally], None]
) -> None:
    """What was acknowledged is there; the tree is the target or the start; all is sound."""
    counted(cut_at_points(server, disk, name, POINTS[name]))


def test_there_are_at_least_200_power_cuts() -> None:
    """The promise of the sweeps above, counted."""
    assert sum(POINTS.values()) >= 200


@pytest.mark.parametrize(("plant", "name"), (("no fsync", "first"), ("no sync of the tree", "rollback")))
def test_a_missing_sync_is_found_by_the_power_cut(server: ForkServer, disk: power.Disk, plant: str, name: str) -> None:
    """Sound under kill -9, torn under a power cut: the planted bug must be seen."""
    tally = cut_at_points(server, disk, name, 12, plant=plant, stop_after=1)
    print(tally, *tally.unsound[:1])
    assert tally.unsound, f"{plant} was not found at {tally.points} points"
