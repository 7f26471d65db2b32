"""Many processes, forks and sudden deaths: nothing acknowledged is lost, nothing is mixed up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reprieve.errors import StoreFailed
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import blob, draft


def content(process: int, n: int) -> list[tuple[bytes, bytes]]:
    shared = [blob(b"shared %d " % k * 500) for k in range(n, n + 3)]
    return shared + [blob(b"own %d %d %d " % (process, n, k) * 400) for k in range(4)]


def test_sixteen_processes_put_and_append(path: str) -> None:
    processes, rounds = 16, 50
    LocalStore.open(path).close()
    children = []
    for process in range(processes):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                store = LocalStore.open(path)
                for n in range(rounds):
                    objects = content(process, n)
                    with store.lock(f"w{process % 4}"):
                        store.blobs.put(objects)
                        with store.transaction():
                            store.blobs.flush()
                            store.timeline(f"w{process % 4}").append(draft(f"{process} {n}", delta=objects[-1][0]))
                store.close()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * processes
    store = LocalStore.open(path)
    for w in range(4):
        labels = [entry.label for entry in store.timeline(f"w{w}").after(0)]
        assert sorted(labels) == sorted(f"{p} {n}" for p in range(w, processes, 4) for n in range(rounds))
        assert list(store.timeline(f"w{w}").verify()) == []
    everything = dict(one for p in range(processes) for n in range(rounds) for one in content(p, n))
    assert dict(store.blobs.get_many(everything)) == everything
    assert list(store.blobs.check()) == []
    with store.gc_lock():
        store.blobs.collect(set(everything))
    assert dict(store.blobs.get_many(everything)) == everything
    store.close()


def test_a_writer_killed_anywhere_leaves_whole_checkpoints(
    path: str, kill_sweep: Callable[[Callable[[int], None], Callable[[int], None]], int]
) -> None:
    """C02, C03: what was acknowledged is there, what was not is absent or whole, and the next writer goes on."""
    LocalStore.open(path).close()
    acknowledged = Path(path).with_name("acknowledged")
    acknowledged.write_text("")

    def work(number: int) -> None:
        store = LocalStore.open(path)
        for n in range(2):
            objects = [blob(b"%d %d %d " % (number, n, k) * 3000) for k in range(12)] + [blob(os.urandom(300_000))]
            with store.lock("w"):
                store.blobs.put(objects)
                with store.transaction():
                    store.blobs.flush()
                    data = " ".join(id.hex() for id, _ in objects)
                    entry = store.timeline("w").append(draft(f"{number} {n}", data=data))
            with acknowledged.open("a") as out:
                out.write(entry.id + "\n")
        store.close()

    def check(number: int) -> None:
        store = LocalStore.open(path)
        with store.lock("w", wait_s=0):
            timeline = store.timeline("w")
            assert list(timeline.verify()) == []
            entries = {entry.id: entry for entry in timeline.after(0)}
            assert set(acknowledged.read_text().split()) <= set(entries)
            for entry in list(entries.values())[-3:]:
                ids = [bytes.fromhex(word) for word in entry.data.split()]
                assert len(dict(store.blobs.get_many(ids))) == len(ids)
            assert store.blobs.damaged() == set()
        store.close()

    assert kill_sweep(work, check) > 25
    store = LocalStore.open(path)
    assert list(store.blobs.check()) == []
    store.close()


def test_the_uncommitted_tail_is_cut_by_the_next_writer(store: LocalStore, path: str) -> None:
    store.blobs.put([blob(b"first")])
    store.blobs.flush()
    size = os.path.getsize(f"{path}/packs/1.pack")
    with open(f"{path}/packs/1.pack", "ab") as pack:
        pack.write(b"garbage of a killed writer" * 1000)
    store.blobs.put([blob(b"second")])
    store.blobs.flush()
    ((end,),) = store._db.query("SELECT end FROM packs")
    assert os.path.getsize(f"{path}/packs/1.pack") == end < size + 500
    assert list(store.blobs.check()) == []


def test_two_writers_use_two_packs(store: LocalStore, path: str) -> None:
    other = LocalStore.open(path)
    a, b = blob(b"a" * 300_000), blob(b"b" * 300_000)
    store.blobs.put([a])
    store.blobs._mine()._write_rest()
    other.blobs.put([b])
    other.blobs.flush()
    store.blobs.flush()
    assert sorted(os.listdir(f"{path}/packs")) == ["1.pack", "2.pack"]
    assert dict(store.blobs.get_many([a[0], b[0]])) == dict([a, b])
    other.close()


def test_a_child_may_not_use_its_parent_s_store_but_may_open_its_own(store: LocalStore, path: str) -> None:
    store.timeline("w").append(draft("parent"))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for use in (
                store.workspaces,
                lambda: store.timeline("w").append(draft()),
                lambda: store.lock("w").__enter__(),
            ):
                try:
                    use()
                except StoreFailed as exc:
                    assert "fork" in exc.message
                else:
                    os._exit(2)
            mine = LocalStore.open(path)
            mine.timeline("w").append(draft("child"))
            mine.close()
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    store.timeline("w").append(draft("parent again"))
    assert [entry.label for entry in store.timeline("w").after(0)] == ["parent", "child", "parent again"]
    assert list(store.timeline("w").verify()) == []


FORKS_INSIDE_A_TRANSACTION = """
import os, sys
from reprieve.store.local import LocalStore
from reprieve.testing.store_suite import draft
store = LocalStore.open(sys.argv[1])
for n in range(30):
    store.timeline("w").append(draft("before"))
with store.transaction():
    store._db.query("PRAGMA cache_size = 1")  # spill: pages of this transaction are on disk already
    for n in range(200):
        store.timeline("w").append(draft("x" * 500))
    pid = os.fork()
    if pid == 0:
        del store
        sys.exit(0)  # the whole end of an interpreter, destructors included
    assert os.waitpid(pid, 0)[1] == 0
    for n in range(200):
        store.timeline("w").append(draft("y" * 500))
"""


def test_a_child_that_ends_normally_does_not_roll_back_its_parent(path: str) -> None:
    """Closing an inherited connection in the middle of a transaction would replay the journal under our feet."""
    src = str(Path(__file__).parents[3] / "src")
    subprocess.run([sys.executable, "-c", FORKS_INSIDE_A_TRANSACTION, path], check=True, env={"PYTHONPATH": src})
    store = LocalStore.open(path)
    assert len(list(store.timeline("w").after(0))) == 430
    assert list(store.timeline("w").verify()) == []
    store._db.check_soundness()
    store.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_death_inside_a_transaction_leaves_the_state_before(path: str, how: signal.Signals) -> None:
    store = LocalStore.open(path)
    store.timeline("w").append(draft("before"))
    store.close()
    pid = os.fork()
    if pid == 0:
        mine = LocalStore.open(path)
        with mine.lock("w"), mine.transaction():
            mine.blobs.put([blob(b"lost" * 100_000)])
            mine.blobs.flush()
            for _ in range(100):
                mine.timeline("w").append(draft("within"))
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), how)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == how
    again = LocalStore.open(path)
    with again.lock("w", wait_s=0):
        assert [entry.label for entry in again.timeline("w").after(0)] == ["before"]
        assert again.blobs.put([blob(b"lost" * 100_000)]) == 1
        again.blobs.flush()
    assert again.blobs.get(blob(b"lost" * 100_000)[0]) == b"lost" * 100_000
    again.close()
