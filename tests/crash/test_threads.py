"""Threads under kill -9 and under many writers.

Killed before and after every call that changes a disk, in put, put_writes, rollback, prune, delete and the note
of what a step changes in a store, also encrypted: what is there
afterwards is what was or what should be, provable, and doing it again ends where it should.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import SRC, threadacts
from support.forkserver import Fault, ForkServer, Ran
from support.sweep import Tally
from support.threadacts import STATES, talk

SUPPORT = Path(threadacts.__file__).resolve().parent
OLD = [f"s{n}" for n in reversed(range(STATES))]
LAST = OLD[0]


@pytest.fixture(scope="module")
def engine() -> Iterator[ForkServer]:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("fault injection needs Linux (LD_PRELOAD) and gcc")
    server = ForkServer(entry="threadacts:main", paths=[str(SRC), str(SUPPORT)])
    yield server
    server.close()


@pytest.fixture(scope="module")
def made(engine: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Threads, plain and encrypted."""
    folders = {}
    for how in ("", " sealed"):
        folders[how] = tmp_path_factory.mktemp("threads") / "made"
        folders[how].mkdir(mode=0o700)
        assert engine.run([f"make{how}", str(folders[how])]).code == 0
    return folders


def how_of(act: str) -> str:
    return " sealed" if act.endswith(" sealed") else ""


def seen(engine: ForkServer, folder: Path, act: str) -> Any:
    looked = engine.run_resident([f"look{how_of(act)}", str(folder)])  # it proves what it shows, and changes nothing
    assert looked.code == 0, looked
    found = looked.json
    assert found["problems"] == [] and found["threads"]["t"]["problems"] == [], found
    return found["threads"]["t"]


def is_put(t: Any) -> bool:
    assert t["states"] in (OLD, ["new", *OLD])
    if "new" in t["states"]:
        assert t["head"] == "new" and t["values"]["new"] == {"talk": talk(60), "n": 99}
    else:
        assert t["head"] == LAST
    return "new" in t["states"]


def is_written(t: Any) -> bool:
    others = [write for write in t["writes"][LAST] if write[0] == "other"]
    assert others in ([], [["other", -1, "bad" * 50], ["other", 0, talk(30)], ["other", 1, 5]])
    assert t["states"] == OLD and len(t["writes"][LAST]) == 1 + len(others)
    return bool(others)


def is_back(t: Any) -> bool:
    assert t["states"][-STATES:] == OLD and len(t["states"]) in (STATES, STATES + 1), t["states"]
    done = t["head"] != LAST
    assert t["values"][t["head"]] == {"talk": talk(22 if done else 20 + STATES - 1), "n": 2 if done else STATES - 1}
    return done


def is_pruned(t: Any) -> bool:
    assert t["states"] in (OLD, [LAST]) and t["head"] == LAST
    assert t["values"][LAST] == {"talk": talk(20 + STATES - 1), "n": STATES - 1} and len(t["writes"][LAST]) == 1
    return t["states"] == [LAST]


def is_deleted(t: Any) -> bool:
    assert t["states"] in (OLD, []) and t["head"] == (LAST if t["states"] else "")
    return not t["states"]


def is_noted(t: Any) -> bool:
    assert t["states"] == OLD and t["head"] == LAST
    assert t["items"] in ([], [[["users", "ada"], "tone", {"text": "x" * 300}]])
    return bool(t["items"])


JUDGES: dict[str, Callable[[Any], bool]] = {
    "put": is_put,
    "writes": is_written,
    "rollback": is_back,
    "prune": is_pruned,
    "delete": is_deleted,
    "items": is_noted,
    "put sealed": is_put,
    "rollback sealed": is_back,
}


@pytest.mark.parametrize("mode", ["kill", "kill_after"])
@pytest.mark.parametrize("act", JUDGES)
def test_P06_killed_at_every_call(
    engine: ForkServer, made: dict[str, Path], tmp_path: Path, act: str, mode: str, counted: Callable[[Tally], None]
) -> None:
    def world(name: object) -> Path:
        return Path(shutil.copytree(made[how_of(act)], tmp_path / str(name)))

    harmless = engine.run([act, str(world("count"))], fault=Fault(mode, at=-1))
    assert harmless.code == 0 and harmless.out == "ack\n" and harmless.seen > 10, harmless
    assert JUDGES[act](seen(engine, tmp_path / "count", act))
    tally = Tally(f"thread {act} {mode}")
    for point in range(1, harmless.seen + 1):
        folder = world(point)
        ran = engine.run([act, str(folder)], fault=replace(Fault(mode), at=point))
        tally.points += 1
        tally.fired += bool(ran.fired) and ran.code == -9
        wrong = judged(engine, folder, act, ran)
        if wrong:
            tally.unsound.append(f"{act} {mode} {point} ({ran.call} {ran.path}): {wrong}")
        shutil.rmtree(folder)
    counted(tally)


def judged(engine: ForkServer, folder: Path, act: str, ran: Ran) -> str:
    try:
        done = JUDGES[act](seen(engine, folder, act))
        if "ack" in ran.out and not done:
            return "was acknowledged and is not there"
        again = engine.run([act, str(folder)])
        if again.code != 0:
            return f"cannot be done again: {again}"
        if not JUDGES[act](seen(engine, folder, act)):
            return "is not done after doing it again"
    except AssertionError as error:
        return str(error)[:500]
    return ""


def test_the_sweep_has_at_least_500_points(engine: ForkServer, made: dict[str, Path], tmp_path: Path) -> None:
    total = 0
    for act in JUDGES:
        folder = Path(shutil.copytree(made[how_of(act)], tmp_path / act))
        total += 2 * engine.run([act, str(folder)], fault=Fault("kill", at=-1)).seen
    assert total >= 500


@pytest.mark.parametrize("spread", ["one thread", "many threads"])
def test_TP02_TP03_sixteen_processes_lose_and_double_nothing(tmp_path: Path, spread: str) -> None:
    """16 processes × 200 states."""
    folder = tmp_path / "state"
    workers = [
        subprocess.Popen(
            [sys.executable, str(SUPPORT / "threadacts.py"), "many", str(folder), f"w{n}", "200",
             "t" if spread == "one thread" else f"t{n % 8}"],
            env={"PYTHONPATH": str(SRC), "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE,
        )
        for n in range(16)
    ]  # fmt: skip
    assert [worker.communicate(timeout=300)[0] for worker in workers] == [b"ack\n"] * 16
    looked = subprocess.run(
        [sys.executable, str(SUPPORT / "threadacts.py"), "look", str(folder)],
        env={"PYTHONPATH": str(SRC)}, capture_output=True, check=True,
    )  # fmt: skip
    found = __import__("json").loads(looked.stdout)
    assert found["problems"] == []
    said = [values["who"] for t in found["threads"].values() for values in t["values"].values()]
    assert sorted(said) == sorted(f"w{worker}/{n}" for worker in range(16) for n in range(200))
    assert all(t["problems"] == [] for t in found["threads"].values())
    assert sum(t["seq"] for t in found["threads"].values()) == 16 * 210
    for t in found["threads"].values():
        for id, written in t["writes"].items():
            assert [value for _, _, value in written] == [t["values"][id]["who"]] * len(written)
