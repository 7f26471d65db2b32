"""Strike a command at its first, second, ... n-th call, each time in a fresh world, and count what was survived."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from support.forkserver import Fault, ForkServer, Ran
from support.scenes import Facts, Scene, judge
from support.site import Site


@dataclass
class Tally:
    """What a sweep did: points tried, faults that struck, worlds that were not sound afterwards."""

    name: str
    points: int = 0
    fired: int = 0
    unsound: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name}: points {self.points}, fired {self.fired}, unsound {len(self.unsound)}"

    def check(self) -> None:
        """Fail unless every fault struck and every world was sound."""
        print(self)
        assert not self.unsound, f"{self}\n\n" + "\n\n".join(self.unsound[:5])
        assert self.fired == self.points > 0, f"{self}: not every fault struck"


def count(server: ForkServer, scene: Scene, fault: Fault) -> Ran:
    """A run without harm: how many calls there are to strike, and which."""
    with Site(server) as site:
        facts = scene.prepare(site)
        ran = site.run(*facts.argv, fault=replace(fault, at=-1, record=True))
        assert ran.code in (0, 1), ran
        return ran


def points_of(total: int, *, shard: int, shards: int, limit: int = 0) -> list[int]:
    """The shard's share of 1..total; with a limit, so many of them all in all, evenly spread, ends included."""
    if limit and total > limit:
        chosen = sorted({1 + round(n * (total - 1) / (limit - 1)) for n in range(limit)})
    else:
        chosen = list(range(1, total + 1))
    return chosen[shard::shards]


def sweep(
    server: ForkServer, scene: Scene, fault: Fault, points: Iterable[int], *, plant: str = "", stop_after: int = 0
) -> Tally:
    """Strike at each point. `stop_after` ends the sweep early when so many unsound worlds were found (planted bugs)."""
    tally = Tally(f"{scene.name} {str(fault).split(' at ')[0]}{f' with {plant}' if plant else ''}")
    server.dismiss_resident()
    for point in points:
        tally.points += 1
        at = point
        for _ in range(4):
            with Site(server) as site:
                with site.in_one_process():
                    facts = scene.prepare(site)
                site.plant = plant
                armed = replace(fault, at=at)
                ran = site.run(*facts.argv, fault=armed)
                if not ran.fired and 0 < ran.seen < at and ran.code in (0, 1):
                    at = ran.seen  # fewer calls this time (a young file was read once, not twice): strike the last one
                    continue
                tally.fired += bool(ran.fired)
                wrong = _judged(site, scene, facts, ran, armed)
                if wrong:
                    where = f"{scene.name}, {armed} ({ran.call} {ran.path})"
                    tally.unsound.append("\n  ".join([where, *wrong]))
                break
        if stop_after and len(tally.unsound) >= stop_after:
            break
    return tally


def _judged(site: Site, scene: Scene, facts: Facts, ran: Ran, fault: Fault) -> list[str]:
    try:
        return judge(site, scene, facts, ran, fault)
    except Exception as error:  # the world is so broken that the judge could not look at it
        return [f"{type(error).__name__} while judging: {error}"]
