"""What every store of threads must do, as tests. For people who write one:

class TestMine(ThreadStoreSuite):
    def open(self, where):
        return MyThreads(where)
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from reprieve.model.thread import STATE, WRITES, ThreadEntry, ThreadRecord
from reprieve.store.thread_chain import FIRST_PREV, next_entry
from reprieve.store.thread_protocol import ThreadStore


class ThreadStoreSuite:
    """Subclass it, and say how a store is opened."""

    survives = True  # what was committed is there in a store opened anew at the same place

    def open(self, where: Path) -> ThreadStore:
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> ThreadStore:
        return self.open(tmp_path)

    def begin(self, store: ThreadStore, id: str = "t") -> ThreadRecord:
        record = ThreadRecord(id, 0, FIRST_PREV, 1)
        store.save_thread(record)
        return record

    def add(
        self, store: ThreadStore, id: str, *, kind: str = STATE, ns: str = "", thread: str = "t", body: bytes = b"{}"
    ) -> ThreadEntry:
        record = store.thread(thread)
        assert record is not None
        entry = next_entry(thread, record.seq, record.hash, kind=kind, ns=ns, id=id, parent="", created_at=7, body=body)
        store.append(thread, entry)
        return entry

    def test_entries_come_back_as_they_were_in_the_order_of_their_numbers(self, store: ThreadStore) -> None:
        self.begin(store)
        added = [self.add(store, f"s{n}", body=b"\x00\xff%d" % n) for n in range(5)]
        assert store.entries("t") == added
        assert store.entries("t", after=3) == added[3:]
        record = store.thread("t")
        assert record is not None and (record.seq, record.hash) == (5, added[-1].hash)

    def test_ids_of_any_letters_are_kept_apart(self, store: ThreadStore) -> None:
        for name in ("", "a", "A", "ü", "u\u0308", "x\0y", "\ud800", "'; DROP TABLE threads; --", "%"):
            self.begin(store, name)
            self.add(store, name, ns=name, thread=name)
            store.set_heads(name, {name: name})
        for record in store.threads():
            assert [(e.ns, e.id) for e in store.entries(record.id)] == [(record.id, record.id)]
            assert store.heads(record.id) == {record.id: record.id}
        assert len(store.threads()) == 9

    def test_a_state_that_is_stored_again_replaces_the_old_one(self, store: ThreadStore) -> None:
        self.begin(store)
        self.add(store, "a", body=b"1")
        self.add(store, "b")
        again = self.add(store, "a", body=b"2")
        assert [e.body for e in store.about("t", "", ["a"])] == [b"2"]
        assert store.seq_of("t", "", "a") == again.seq
        assert [e.is_current for e in store.entries("t")] == [False, True, True]
        assert [e.seq for e in store.entries("t", old=False)] == [2, 3]

    def test_about_gives_states_with_their_writes(self, store: ThreadStore) -> None:
        self.begin(store)
        self.add(store, "a")
        self.add(store, "a", kind=WRITES, body=b"w1")
        self.add(store, "b")
        self.add(store, "a", kind=WRITES, body=b"w2")
        self.add(store, "a", ns="child")
        assert [e.seq for e in store.about("t", "", ["a"])] == [1, 2, 4]
        assert [e.seq for e in store.about("t", "", ["b", "a", "none"])] == [1, 2, 3, 4]
        assert store.about("none", "", ["a"]) == []

    def test_states_are_listed_newest_first(self, store: ThreadStore) -> None:
        self.begin(store)
        for n in range(6):
            self.add(store, f"s{n}", ns="child" if n % 2 else "")
        assert [e.id for e in store.states("t", None)] == ["s5", "s4", "s3", "s2", "s1", "s0"]
        assert [e.id for e in store.states("t", "", limit=2)] == ["s4", "s2"]
        assert [e.id for e in store.states("t", "", before_seq=3)] == ["s0"]
        assert [e.id for e in store.states("t", "child", before_id="s3")] == ["s1"]

    def test_a_part_is_kept_once_and_as_long_as_a_thread_needs_it(self, store: ThreadStore) -> None:
        self.begin(store, "a")
        self.begin(store, "b")
        store.put_parts("a", {b"1" * 32: b"one", b"2" * 32: b"two"})
        store.put_parts("b", {b"1" * 32: b"one"})
        before = store.sweeps
        assert store.keep_parts("a", {b"2" * 32}) == 1
        assert store.sweeps > before
        assert store.parts([b"1" * 32, b"2" * 32, b"3" * 32]) == {b"1" * 32: b"one", b"2" * 32: b"two"}
        assert store.part_hashes("a") == [b"2" * 32]
        assert store.keep_parts("b", set()) == 1
        assert store.parts([b"1" * 32]) == {}

    def test_shared_parts_outlive_the_thread_they_came_from(self, store: ThreadStore) -> None:
        self.begin(store, "a")
        self.begin(store, "b")
        store.put_parts("a", {b"1" * 32: b"one"})
        store.share_parts("a", "b")
        store.clear_thread("a")
        assert store.parts([b"1" * 32]) == {b"1" * 32: b"one"}

    def test_a_cleared_thread_has_its_record_and_nothing_else(self, store: ThreadStore) -> None:
        record = self.begin(store)
        self.add(store, "a")
        store.put_parts("t", {b"1" * 32: b"one"})
        store.set_heads("t", {"": "a"})
        store.clear_thread("t")
        assert (store.entries("t"), store.heads("t"), store.part_hashes("t")) == ([], {}, [])
        assert store.parts([b"1" * 32]) == {}
        found = store.thread("t")
        assert found is not None and found.id == record.id

    def test_a_transaction_is_all_or_nothing(self, store: ThreadStore) -> None:
        self.begin(store)
        self.add(store, "a")
        store.put_parts("t", {b"1" * 32: b"one"})
        store.set_heads("t", {"": "a"})
        before = (store.threads(), store.entries("t"), store.heads("t"), store.part_hashes("t"))
        with pytest.raises(ZeroDivisionError), store.transaction():
            self.begin(store, "new")
            self.add(store, "x", thread="new")
            self.add(store, "a", body=b"other")
            self.add(store, "b", kind=WRITES)
            store.put_parts("t", {b"2" * 32: b"two"})
            store.set_heads("t", {"": "b", "child": "c"})
            store.drop("t", [1])
            store.keep_parts("t", set())
            store.clear_thread("t")
            raise ZeroDivisionError
        assert before == (store.threads(), store.entries("t"), store.heads("t"), store.part_hashes("t"))
        assert store.parts([b"1" * 32, b"2" * 32]) == {b"1" * 32: b"one"}
        self.begin(store, "other")  # must not get what the one that never was had
        assert store.entries("other") == []

    def test_dropped_entries_are_gone(self, store: ThreadStore) -> None:
        self.begin(store)
        for n in range(4):
            self.add(store, f"s{n}")
        store.drop("t", [1, 3])
        assert [e.seq for e in store.entries("t")] == [2, 4]
        assert store.seq_of("t", "", "s0") == 0

    def test_threads_of_a_process_take_turns(self, store: ThreadStore) -> None:
        """What is read inside a transaction is true until its end."""
        self.begin(store)

        def work() -> None:
            for _ in range(25):
                with store.transaction():
                    record = store.thread("t")
                    assert record is not None
                    self.add(store, f"s{record.seq}")

        workers = [Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [e.seq for e in store.entries("t")] == list(range(1, 101))

    def test_P26_what_was_committed_is_there_again(self, store: ThreadStore, tmp_path: Path) -> None:
        if not self.survives:
            pytest.skip("this store ends with its process")
        self.begin(store)
        self.add(store, "a")
        store.put_parts("t", {b"1" * 32: b"one"})
        expected = store.entries("t")
        store.close()
        again = self.open(tmp_path)
        assert again.entries("t") == expected
        assert again.parts([b"1" * 32]) == {b"1" * 32: b"one"}
        assert again.problems() == []
