"""The measuring itself: every system does every thing, in turn, several times over, each on a copy of the same tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import trees
from benchmarks.measure import Failed, Series
from benchmarks.ours import ReprieveDirect, ReprieveLibrary, ReprieveProcess
from benchmarks.peers import System

FIRST, UNCHANGED, CHANGED_1, CHANGED_100 = "first", "unchanged", "1 changed", "100 changed"
RESTORE_1, RESTORE_100 = "restore 1", "restore 100"
RESTORE_ALL, RESTORE_REWRITTEN = "restore all", "restore all rewritten"
OPERATIONS = (FIRST, UNCHANGED, CHANGED_1, CHANGED_100, RESTORE_1, RESTORE_100, RESTORE_ALL)

CHURNS = 50
SETTLE_S = 0.1


def settle(root: Path) -> None:
    """Let what was just written grow old: on the disk, and older than a tick of the clock.

    An agent's edits are seconds old when they are saved or taken back. Deleting a file that never reached the disk is
    many times cheaper than deleting one that did, and timestamps that are too young are not trusted, by git neither.
    """
    import ctypes

    fd = os.open(root, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(fd)
    finally:
        os.close(fd)
    time.sleep(SETTLE_S)


@dataclass
class Row:
    """What one system took."""

    name: str
    series: dict[str, Series] = field(default_factory=dict)
    disk_first_kb: int = 0
    disk_churned_kb: int = 0
    churn: Series = field(default_factory=Series)
    exact: str = ""
    note: str = ""

    def of(self, operation: str) -> Series:
        return self.series.setdefault(operation, Series())


class Bench:
    """One tree, all systems."""

    def __init__(
        self,
        tree: str,
        *,
        scratch: Path,
        systems: list[type[System]],
        runs: int,
        has_rewritten: bool,
        say: Callable[[str], None],
    ) -> None:
        self.tree, self.runs, self.has_rewritten, self.say = tree, runs, has_rewritten, say
        self.scratch = scratch / tree
        shutil.rmtree(self.scratch, ignore_errors=True)
        master = self.scratch / "master"
        master.mkdir(parents=True)
        trees.TREES[tree](master)
        self.files = trees.files_of(master)
        self.rows: dict[str, Row] = {}
        self.systems: list[System] = []
        for number, kind in enumerate(systems):
            self.rows[kind.name] = Row(kind.name, note=kind.missing())
            if kind.missing():
                continue
            place = self.scratch / f"system{number}"
            place.mkdir()
            subprocess.run(["cp", "-a", master, place / "tree"], check=True)
            self.systems.append(kind(place / "tree", place / "store"))
        shutil.rmtree(master)

    def run(self) -> None:
        for number in range(self.runs):
            self.say(f"{self.tree}: round {number + 1} of {self.runs}")
            self._round(number)

    def close(self) -> None:
        for system in self.systems:
            system.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _each(self, number: int, what: Callable[[System], None]) -> None:
        """Every system once, beginning with another one each time, so that none always runs on a warm or cold cache."""
        working = [s for s in self.systems if not self.rows[s.name].note]
        if not working:
            return
        start = number % len(working)
        for system in working[start:] + working[:start]:
            try:
                what(system)
            except Failed as failed:
                self.rows[system.name].note = str(failed)
                print(f"{system.name}: {failed}", file=sys.stderr)

    def _round(self, number: int) -> None:
        saves: dict[str, str] = {}
        prints: dict[str, trees.Print] = {}

        def save(operation: str, prepare: Callable[[System], object]) -> None:
            def measured(system: System) -> None:
                prepare(system)
                settle(system.root)
                took, saves[system.name] = system.save()
                self.rows[system.name].of(operation).add(took)
                if operation == FIRST:
                    self.rows[system.name].disk_first_kb = system.disk_kb()

            self._each(number, measured)

        def restore(operation: str, wreck: Callable[[System], list[Path] | None]) -> None:
            def measured(system: System) -> None:
                row = self.rows[system.name]
                # Comparing 100,000 files takes longer than restoring them; peers are compared once
                is_checked = number == 0 or isinstance(system, (ReprieveDirect, ReprieveLibrary))
                if is_checked and system.name not in prints:
                    prints[system.name] = trees.fingerprint(system.root)
                created = wreck(system)
                settle(system.root)
                row.of(operation).add(system.restore(saves[system.name]))
                if is_checked:
                    row.exact = worse(row.exact, trees.compare(prints[system.name], trees.fingerprint(system.root)))
                for path in created or ():
                    path.unlink(missing_ok=True)
                if row.exact != "exact":  # what this system restores is its own truth from here on
                    prints.pop(system.name, None)
                    saves[system.name] = system.save()[1]

            self._each(number, measured)

        save(FIRST, lambda system: system.begin())
        for _ in range(3):
            save(UNCHANGED, lambda system: None)
        save(CHANGED_1, lambda system: trees.edit(system.root, self._edited(system), 1, seed=("one", number)))
        save(CHANGED_100, lambda system: trees.edit(system.root, self.files, 100, seed=("many", number)))
        restore(RESTORE_1, lambda system: trees.wreck(system.root, self.files, 1, seed=("w1", number)))
        restore(RESTORE_100, lambda system: trees.wreck(system.root, self.files, 100, seed=("w100", number)))
        restore(RESTORE_ALL, lambda system: trees.empty(system.root))
        if self.has_rewritten:
            restore(RESTORE_REWRITTEN, lambda system: trees.rewrite(system.root, self.files))

    def _edited(self, system: System) -> list[Path]:
        """One changed file: where there are large ones, one of these, since that is the hard case."""
        large = [path for path in self.files if path.parts[0] == "data"] if self.tree == "large" else []
        return large or self.files

    def churn(self) -> None:
        """Fifty checkpoints with one file in a hundred edited before each: what history costs."""
        self.say(f"{self.tree}: {CHURNS} checkpoints with 1 % churn")
        count = max(1, len(self.files) // 100)

        def begin(system: System) -> None:
            if system.keeps_history:
                system.begin()
                system.save()

        self._each(0, begin)
        for number in range(CHURNS):

            def step(system: System, number: int = number) -> None:
                if system.keeps_history:
                    trees.edit(system.root, self.files, count, seed=("churn", number))
                    settle(system.root)
                    self.rows[system.name].churn.add(system.save()[0])

            self._each(number, step)
        for system in self.systems:
            if system.keeps_history:
                self.rows[system.name].disk_churned_kb = system.disk_kb()


def worse(one: str, two: str) -> str:
    """The worse of two verdicts of `trees.compare`."""
    order = {"": 0, "exact": 1, "bytes": 2}
    return one if order.get(one, 3) >= order.get(two, 3) else two


def growth(scratch: Path, *, tree: str, histories: tuple[int, int], samples: int) -> dict[str, dict[str, Series]]:
    """Unchanged checkpoints in a young and in an old store, by turns: does history make them slower?"""
    found: dict[str, dict[str, Series]] = {}
    for kind in (ReprieveProcess, ReprieveLibrary):
        systems: list[tuple[str, System]] = []
        for length in histories:
            place = scratch / f"growth{length}"
            shutil.rmtree(place, ignore_errors=True)
            (place / "tree").mkdir(parents=True)
            trees.TREES[tree](place / "tree")
            # history is made by the library, which is faster; both read the same store
            maker = ReprieveLibrary(place / "tree", place / "store")
            maker.begin()
            for _ in range(length - 1):
                maker.save()
            if kind is ReprieveProcess:
                maker.close()
                installed = ReprieveProcess(place / "tree", place / "store")
                installed.env = maker.env
                installed.warm()
                system: System = installed
            else:
                system = maker
            systems.append((f"{length}th", system))
        series = {label: Series() for label, _ in systems}
        for _ in range(samples):
            for label, system in systems:
                settle(system.root)
                series[label].add(system.save()[0])
        for _, system in systems:
            system.close()
        found[kind.name] = series
    return found
