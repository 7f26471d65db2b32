"""What every store must do, as tests: subclass, say how to make one, run pytest.

    from reprieve.testing.store_suite import StoreSuite

    class TestMyStore(StoreSuite):
        def open(self, where, *, reporter=None):
            return MyStore(where / "db", reporter=reporter)

`open` called twice with the same directory must give the same store; a store that does not outlive its process says so
with `survives = False`. `damage` spoils one object on the medium; leave it out if that cannot be done from outside.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.errors import StoreCorrupted, StoreFailed, StoreLocked
from reprieve.model.reporter import Reporter
from reprieve.model.timeline import CHECKPOINT, PRUNE, ROLLBACK, Draft, WorkspaceRecord
from reprieve.store.protocols import Store


def blob(data: bytes) -> tuple[bytes, bytes]:
    """An object as `put` takes it."""
    return hashlib.sha256(data).digest(), data


def draft(label: str = "", *, kind: str = CHECKPOINT, created_at: int = 1, **more: object) -> Draft:
    """An entry with nothing special about it."""
    return Draft(kind, created_at, label=label, **more)  # type: ignore[arg-type]


class Words(Reporter):
    """A Reporter that keeps what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class StoreSuite:
    """Subclass this; every test gets a fresh store."""

    survives = True

    def open(self, where: Path, *, reporter: Reporter | None = None) -> Store:
        """The store at where, made if it is not there."""
        raise NotImplementedError

    def damage(self, store: Store, id: bytes) -> None:
        """Change a byte of a stored object behind the store's back."""
        pytest.skip("this store's objects cannot be damaged from outside")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = self.open(tmp_path)
        yield store
        store.close()

    # content

    def test_what_was_put_and_flushed_comes_back(self, store: Store) -> None:
        """Objects of every size: empty, small, just around a group, far larger."""
        sizes = (0, 1, 15, 4096, 16 << 10, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 3 << 20)
        objects = dict(blob(os.urandom(size)) for size in sizes) | dict(blob(b"text " * size) for size in sizes[1:])
        assert store.blobs.put(objects.items()) == len(objects)
        store.blobs.flush()
        assert {id: store.blobs.get(id) for id in objects} == objects
        assert dict(store.blobs.get_many(objects)) == objects
        assert store.blobs.has(list(objects)) == set(objects)

    def test_put_says_how_many_are_new_and_keeps_each_once(self, store: Store) -> None:
        one, two = blob(b"one"), blob(b"two")
        assert store.blobs.put([one, one]) == 1
        assert store.blobs.put([one]) == 0
        store.blobs.flush()
        assert store.blobs.put([one, two]) == 1
        store.blobs.flush()
        assert [id for id, _ in store.blobs.get_many([one[0], two[0], one[0]])].count(one[0]) == 1

    def test_nothing_is_findable_before_flush(self, store: Store) -> None:
        id, data = blob(b"not yet")
        store.blobs.put([(id, data)])
        assert store.blobs.has([id]) == set()
        store.blobs.flush()
        assert store.blobs.has([id]) == {id}

    def test_buffers_may_be_reused_after_put(self, store: Store) -> None:
        """Any buffer will do, and what the caller does with it afterwards does not matter."""
        objects = [blob(bytes([n]) * 300_000) for n in range(4)] + [blob(bytes([n]) * 100) for n in range(4)]
        for id, data in objects:
            buffer = bytearray(data)
            store.blobs.put([(id, memoryview(buffer))])
            buffer[:] = b"x" * len(buffer)
        store.blobs.flush()
        assert dict(store.blobs.get_many(id for id, _ in objects)) == dict(objects)

    def test_objects_may_come_from_a_generator(self, store: Store) -> None:
        objects = [blob(b"%d" % n * 50) for n in range(3000)]
        assert store.blobs.put(one for one in objects) == 3000
        store.blobs.flush()
        assert dict(store.blobs.get_many(id for id, _ in objects)) == dict(objects)

    def test_what_was_announced_comes_back_as_if_it_had_not_been(self, store: Store) -> None:
        """A hint is a hint: asked for all of it, for more, for less, for something else, or never."""
        objects = dict(blob(b"%d " % n * 20_000) for n in range(20))
        other = blob(b"other" * 9000)
        store.blobs.put([*objects.items(), other])
        store.blobs.flush()
        missing = hashlib.sha256(b"never stored").digest()
        store.blobs.prefetch([*objects, missing])
        assert dict(store.blobs.get_many(objects)) == objects
        assert dict(store.blobs.get_many(objects)) == objects
        some = dict(list(objects.items())[:15])
        store.blobs.prefetch(some)
        assert dict(store.blobs.get_many([*objects, other[0]])) == {**objects, other[0]: other[1]}
        store.blobs.prefetch(objects)
        assert dict(store.blobs.get_many(some)) == some
        store.blobs.prefetch(objects)
        assert dict(store.blobs.get_many([other[0]])) == {other[0]: other[1]}
        store.blobs.prefetch([*objects, missing])
        with pytest.raises(StoreCorrupted):
            list(store.blobs.get_many([*objects, missing]))
        store.blobs.prefetch(objects)

    def test_an_object_that_is_not_there_is_named(self, store: Store) -> None:
        missing = hashlib.sha256(b"never stored").digest()
        with pytest.raises(StoreCorrupted) as caught:
            store.blobs.get(missing)
        assert missing.hex()[:16] in caught.value.message
        with pytest.raises(StoreCorrupted):
            list(store.blobs.get_many([missing]))
        assert [id for id, _ in store.blobs.check([missing])] == [missing]
        assert store.blobs.has([missing]) == set()

    def test_bytes_that_do_not_match_their_id_are_never_returned(self, store: Store) -> None:
        id, _ = blob(b"right")
        store.blobs.put([(id, b"wrong"), blob(b"another")])
        store.blobs.flush()
        with pytest.raises(StoreCorrupted):
            store.blobs.get(id)
        assert store.blobs.get(blob(b"another")[0]) == b"another"

    def test_a_damaged_object_is_found_remembered_and_healed(self, store: Store) -> None:
        """The others stay readable, and the next put of the same content stores it anew."""
        bad, good = blob(b"bad " * 5000), blob(b"good " * 80_000)
        store.blobs.put([bad])
        store.blobs.flush()
        store.blobs.put([good])
        store.blobs.flush()
        self.damage(store, bad[0])
        with pytest.raises(StoreCorrupted) as caught:
            store.blobs.get(bad[0])
        assert bad[0].hex()[:16] in caught.value.message
        assert store.blobs.damaged() == {bad[0]}
        assert store.blobs.has([bad[0], good[0]]) == {good[0]}
        assert [id for id, _ in store.blobs.check()] == [bad[0]]
        assert store.blobs.get(good[0]) == good[1]
        assert store.blobs.put([bad, good]) == 1
        store.blobs.flush()
        assert store.blobs.damaged() == set()
        assert dict(store.blobs.get_many([bad[0], good[0]])) == dict([bad, good])
        assert list(store.blobs.check()) == []

    def test_damage_in_what_was_announced_is_named(self, store: Store) -> None:
        objects = [blob(b"%d " % n * 30_000) for n in range(8)]
        for one in objects:
            store.blobs.put([one])
            store.blobs.flush()
        self.damage(store, objects[3][0])
        store.blobs.prefetch(id for id, _ in objects)
        with pytest.raises(StoreCorrupted) as caught:
            list(store.blobs.get_many(id for id, _ in objects))
        assert objects[3][0].hex()[:16] in caught.value.message
        assert dict(store.blobs.get_many(id for id, _ in objects[4:])) == dict(objects[4:])

    def test_a_hit_on_damaged_content_is_not_trusted(self, store: Store) -> None:
        """Nobody has read it since it was damaged: put itself looks."""
        one = blob(b"seen before " * 3000)
        store.blobs.put([one])
        store.blobs.flush()
        self.damage(store, one[0])
        assert store.blobs.put([one]) == 1
        store.blobs.flush()
        assert store.blobs.get(one[0]) == one[1]

    def test_collect_drops_the_dead_and_keeps_the_living(self, store: Store) -> None:
        living = dict(blob(b"live %d " % n * 100) for n in range(500))
        dead = dict(blob(b"dead %d " % n * 100) for n in range(500))
        mixed = [pair for both in zip(living.items(), dead.items(), strict=True) for pair in both]
        store.blobs.put(mixed)
        store.blobs.flush()
        with store.gc_lock():
            objects, size = store.blobs.collect(set(living))
        assert objects == 500
        assert size > 0
        assert dict(store.blobs.get_many(living)) == living
        assert store.blobs.has(list(dead)) == set()
        assert list(store.blobs.check()) == []
        assert store.blobs.put(list(dead.items())) == 500
        store.blobs.flush()
        assert dict(store.blobs.get_many(dead)) == dead

    def test_collect_of_nothing_changes_nothing(self, store: Store) -> None:
        living = dict(blob(b"%d" % n) for n in range(10))
        store.blobs.put(living.items())
        store.blobs.flush()
        for _ in range(2):
            with store.gc_lock():
                assert store.blobs.collect(set(living)) == (0, 0)
        assert dict(store.blobs.get_many(living)) == living

    # transactions

    def test_content_and_entry_are_kept_together(self, store: Store) -> None:
        one = blob(b"content")
        with store.transaction():
            store.blobs.put([one])
            store.blobs.flush()
            store.timeline("w").append(draft("first"))
        assert store.blobs.get(one[0]) == one[1]
        assert [entry.label for entry in store.timeline("w").after(0)] == ["first"]

    def test_a_failed_transaction_leaves_nothing(self, store: Store) -> None:
        store.timeline("w").append(draft("before"))
        one = blob(b"content")
        with pytest.raises(RuntimeError), store.transaction():
            store.blobs.put([one])
            store.blobs.flush()
            store.timeline("w").append(draft("within"))
            store.timeline("w").set_full(2, one[0])
            store.timeline("w").set_intent(b"intent")
            store.save_workspace(_record("w"))
            raise RuntimeError
        timeline = store.timeline("w")
        assert [entry.label for entry in timeline.after(0)] == ["before"]
        assert (timeline.fulls(), timeline.intent(), store.workspaces()) == ([], b"", [])
        assert store.blobs.has([one[0]]) == set()
        assert store.blobs.put([one]) == 1
        store.blobs.flush()
        timeline.append(draft("after"))
        assert store.blobs.get(one[0]) == one[1]
        assert list(timeline.verify()) == []

    def test_transactions_nest_by_joining(self, store: Store) -> None:
        with store.transaction():
            with store.transaction():
                store.timeline("w").append(draft("inner"))
            store.timeline("w").append(draft("outer"))
        assert len(list(store.timeline("w").after(0))) == 2

    def test_a_failed_part_fails_the_whole(self, store: Store) -> None:
        """Even if the error of the part is caught."""
        with pytest.raises(StoreFailed), store.transaction():
            store.timeline("w").append(draft("outer"))
            try:
                with store.transaction():
                    store.timeline("w").append(draft("inner"))
                    raise KeyError
            except KeyError:
                pass
        assert store.timeline("w").head() is None

    # timeline

    def test_entries_are_numbered_and_chained(self, store: Store) -> None:
        timeline = store.timeline("w")
        first = timeline.append(draft("first", note="n", step="s", actor="a", data='{"x": 1}', files=3, size=9))
        second = timeline.append(draft("second", kind=ROLLBACK, delta=b"d" * 32, changed=2))
        assert (first.seq, second.seq) == (1, 2)
        assert (first.prev, second.prev) == (bytes(32), first.hash)
        assert len(first.id) == 10
        assert not set(first.id) & set("ilou")
        assert [timeline.head(), timeline.get(first.id), timeline.at(1)] == [second, first, first]
        assert (timeline.get("nosuch"), timeline.at(3), timeline.at(0)) == (None, None, None)
        assert list(timeline.after(0)) == [first, second]
        assert list(timeline.newest_first()) == [second, first]
        assert list(timeline.verify()) == []

    def test_an_id_given_by_the_caller_is_kept_and_is_unique(self, store: Store) -> None:
        timeline = store.timeline("w")
        assert timeline.append(draft(id="k7m2k7m2k7")).id == "k7m2k7m2k7"
        with pytest.raises(StoreFailed):
            timeline.append(draft(id="k7m2k7m2k7"))
        assert len(list(timeline.after(0))) == 1

    def test_an_empty_timeline(self, store: Store) -> None:
        timeline = store.timeline("empty")
        assert timeline.head() is None
        assert list(timeline.newest_first()) == list(timeline.after(0)) == timeline.matching("x") == []
        assert timeline.before_time(1 << 62) is None
        assert timeline.full_at_or_before(9) is None
        assert timeline.intent() == b""
        assert list(timeline.verify()) == []

    def test_timelines_of_workspaces_are_apart(self, store: Store) -> None:
        a, b = store.timeline("a").append(draft("a")), store.timeline("b").append(draft("b"))
        assert (a.seq, b.seq) == (1, 1)
        assert a.hash != b.hash
        assert store.timeline("a").get(b.id) is None
        assert [entry.label for entry in store.timeline("b").newest_first()] == ["b"]

    def test_walking_back_in_pages(self, store: Store) -> None:
        timeline = store.timeline("w")
        with store.transaction():
            for n in range(1, 601):
                timeline.append(draft(str(n), kind=ROLLBACK if n % 10 == 0 else CHECKPOINT))
        seqs = [entry.seq for entry in timeline.newest_first()]
        assert seqs == list(range(600, 0, -1))
        assert [entry.seq for entry in timeline.after(0)] == seqs[::-1]
        assert [entry.seq for entry in timeline.newest_first(limit=3, before_seq=100)] == [99, 98, 97]
        assert [entry.seq for entry in timeline.newest_first(limit=2, kinds=[ROLLBACK])] == [600, 590]
        assert [entry.seq for entry in timeline.newest_first(kinds=[ROLLBACK, CHECKPOINT], before_seq=3)] == [2, 1]
        assert [entry.seq for entry in timeline.after(598)] == [599, 600]

    def test_search_looks_at_what_people_read(self, store: Store) -> None:
        """Any case, any part, any alphabet."""
        timeline = store.timeline("w")
        entries = [
            timeline.append(draft("Fix LOGIN")),
            timeline.append(draft(note="login again")),
            timeline.append(draft(step="ÄRGER mit Straße")),
            timeline.append(draft(actor="claude/login-7")),
            timeline.append(draft("other", data='{"login": 1}')),
            timeline.append(draft("100% done_")),
        ]
        timeline.rename(entries[4].id, "Before-Login")
        assert [e.seq for e in timeline.newest_first(search="login")] == [5, 4, 2, 1]
        assert [e.seq for e in timeline.newest_first(search="LOGIN", limit=2)] == [5, 4]
        assert [e.seq for e in timeline.newest_first(search="ärger MIT strasse")] == [3]
        assert [e.seq for e in timeline.newest_first(search="0% d")] == [6]
        assert [e.seq for e in timeline.newest_first(search="_")] == [6]
        assert [e.seq for e in timeline.newest_first(search=entries[1].id[2:8])] == [2]
        assert list(timeline.newest_first(search="nothing like it")) == []

    def test_matching_finds_ids_labels_and_names(self, store: Store) -> None:
        timeline = store.timeline("w")
        first = timeline.append(draft("good", id="aaaaaaaaaa"))
        second = timeline.append(draft("good", id="aaaabbbbbb"))
        third = timeline.append(draft(id="cccccccccc"))
        timeline.rename(third.id, "good")
        assert [e.id for e in timeline.matching("aaaa")] == [second.id, first.id]
        assert [e.id for e in timeline.matching("aaaab")] == [second.id]
        assert [e.id for e in timeline.matching("good")] == [third.id, second.id, first.id]
        assert timeline.matching("goo") == timeline.matching("") == timeline.matching("%") == []

    def test_a_name_stands_for_the_label_until_it_is_taken_away(self, store: Store) -> None:
        """And the label itself can be taken away; a pin before or after changes nothing about that."""
        timeline = store.timeline("w")
        entry = timeline.append(draft("label"))
        timeline.pin(entry.id)
        for name, title in (("name", "name"), ("", "label"), (None, ""), ("label", "label"), (None, ""), ("", "label")):
            timeline.rename(entry.id, name)
            timeline.pin(entry.id, pinned=name is None)
            found = timeline.get(entry.id)
            assert found is not None and (found.name, found.title, found.label) == (name, title, "label")
            for text in ("name", "label"):
                assert [e.id for e in timeline.matching(text)] == ([entry.id] if text == title else [])
                assert [e.id for e in timeline.newest_first(search=text)] == ([entry.id] if text == title else [])
        assert list(timeline.verify()) == []

    def test_the_newest_point_before_a_time(self, store: Store) -> None:
        """By order, not by clock: of two that are early enough the later entry counts, whatever its clock said."""
        timeline = store.timeline("w")
        for label, at in (("a", 100), ("b", 300), ("c", 200)):
            timeline.append(draft(label, created_at=at))
        timeline.append(draft("p", kind=PRUNE, created_at=250))
        labels = [entry.label if (entry := timeline.before_time(ns)) else None for ns in (99, 100, 199, 260, 999)]
        assert labels == [None, "a", "a", "c", "c"]

    def test_text_of_any_kind_comes_back(self, store: Store) -> None:
        timeline = store.timeline("w")
        odd = "quote ' \" nul \0 newline \n 日本語 🙂 \u202e"
        assert timeline.append(draft(odd, note=odd, data=odd)).label == odd
        assert timeline.append(draft("from argv \udcff")).label == timeline.at(2).label  # type: ignore[union-attr]
        assert list(timeline.verify()) == []

    def test_large_numbers_come_back(self, store: Store) -> None:
        entry = store.timeline("w").append(draft(created_at=(1 << 63) - 1, size=(1 << 63) - 1, files=1 << 40))
        assert store.timeline("w").head() == entry

    def test_marks_are_beside_the_chain(self, store: Store) -> None:
        timeline = store.timeline("w")
        entry = timeline.append(draft("x"))
        timeline.pin(entry.id)
        timeline.rename(entry.id, "release")
        timeline.drop_trees([entry.seq])
        marked = timeline.get(entry.id)
        assert marked is not None
        assert (marked.is_pinned, marked.is_pruned, marked.name) == (True, True, "release")
        assert marked.hash == entry.hash
        assert list(timeline.verify()) == []
        timeline.pin(entry.id, pinned=False)
        timeline.rename(entry.id, "")
        assert timeline.get(entry.id) == entry.replace(is_pruned=True)

    def test_marking_an_entry_that_is_not_there_fails(self, store: Store) -> None:
        with pytest.raises(StoreFailed):
            store.timeline("w").pin("nosuch")
        with pytest.raises(StoreFailed):
            store.timeline("w").rename("nosuch", "x")

    def test_full_trees(self, store: Store) -> None:
        timeline = store.timeline("w")
        for _ in range(10):
            timeline.append(draft())
        timeline.set_full(1, b"1" * 32)
        timeline.set_full(6, b"x" * 32)
        timeline.set_full(6, b"6" * 32)
        assert timeline.fulls() == [(1, b"1" * 32), (6, b"6" * 32)]
        assert timeline.full_at_or_before(5) == (1, b"1" * 32)
        assert timeline.full_at_or_before(6) == timeline.full_at_or_before(10) == (6, b"6" * 32)
        assert timeline.full_at_or_before(0) is None
        timeline.drop_trees([1, 2])
        assert timeline.fulls() == [(6, b"6" * 32)]
        assert [entry.seq for entry in timeline.after(0) if entry.is_pruned] == [1, 2]

    def test_the_intent_of_an_operation(self, store: Store) -> None:
        store.save_workspace(_record("w"))
        timeline = store.timeline("w")
        timeline.set_intent(b"\0intent")
        assert timeline.intent() == b"\0intent"
        assert store.workspaces() == [_record("w").replace(intent=b"\0intent")]
        timeline.set_intent(b"")
        assert timeline.intent() == b""

    # workspaces

    def test_workspaces_are_saved_by_id(self, store: Store) -> None:
        first = _record("one", root=b"/a \xff", dev=(1 << 64) - 1, ino=1 << 63, created_at=1)
        second = _record("two", created_at=2)
        store.save_workspace(second)
        store.save_workspace(first)
        assert store.workspaces() == [first, second]
        moved = first.replace(root=b"/b", settings='{"x": 1}', intent=b"not saved here")
        store.save_workspace(moved)
        assert store.workspaces() == [moved.replace(intent=b""), second]

    # locks

    def test_a_lock_is_reentrant_in_its_holder(self, store: Store) -> None:
        with store.lock("w", wait_s=0), store.lock("w", wait_s=0), store.lock("other", wait_s=0):
            pass
        with store.gc_lock(wait_s=0), store.lock("w", wait_s=0), store.gc_lock(wait_s=0):
            pass

    def test_another_thread_waits_for_the_lock(self, store: Store) -> None:
        with store.lock("w"):
            assert _in_thread(lambda: _try(store.lock("w", wait_s=0.05))) == "locked"
            assert _in_thread(lambda: _try(store.lock("another", wait_s=0.05))) == "free"
            with store.lock("w"):
                pass
            assert _in_thread(lambda: _try(store.lock("w", wait_s=0.05))) == "locked"
        assert _in_thread(lambda: _try(store.lock("w", wait_s=0.05))) == "free"

    def test_gc_runs_alone(self, store: Store) -> None:
        with store.lock("w"):
            assert _in_thread(lambda: _try(store.gc_lock(wait_s=0.05))) == "locked"
        with store.gc_lock():
            assert _in_thread(lambda: _try(store.lock("w", wait_s=0.05))) == "locked"
            assert _in_thread(lambda: _try(store.gc_lock(wait_s=0.05))) == "locked"
        assert _in_thread(lambda: _try(store.gc_lock(wait_s=0.05))) == "free"

    def test_who_has_left_a_workspace_holds_no_gc_off(self, store: Store) -> None:
        """Also one who has put something and came to nothing; what was put can still be flushed, or put again."""
        id, data = blob(b"looked at in vain")
        with store.lock("w"):
            with store.lock("other"):
                store.blobs.put([(id, data)])
            assert _in_thread(lambda: _try(store.gc_lock(wait_s=0.05))) == "locked"
        assert _in_thread(lambda: _try(store.gc_lock(wait_s=0.05))) == "free"
        store.blobs.flush()
        assert store.blobs.get(id) == data

    def test_waiting_is_said_after_a_second(self, tmp_path: Path) -> None:
        words = Words()
        store = self.open(tmp_path, reporter=words)
        with store.lock("w"):
            assert _in_thread(lambda: _try(store.lock("w", wait_s=0.1))) == "locked"
            said_early = list(words.notes)
            assert _in_thread(lambda: _try(store.lock("w", wait_s=1.2))) == "locked"
        store.close()
        assert len(words.notes) == 1
        assert "waiting" in words.notes[0]
        assert said_early == []

    def test_threads_work_side_by_side(self, store: Store) -> None:
        """Each puts, flushes and appends on its own; nothing is lost or mixed up."""

        def work(number: int) -> str:
            for n in range(20):
                objects = [blob(b"%d %d %d " % (number, n, k) * 300) for k in range(20)]
                with store.lock(f"w{number % 2}"):
                    store.blobs.put(objects)
                    with store.transaction():
                        store.blobs.flush()
                        store.timeline(f"w{number % 2}").append(draft(f"{number} {n}", delta=objects[0][0]))
                assert dict(store.blobs.get_many(id for id, _ in objects)) == dict(objects)
            return "done"

        results: list[str] = []
        threads = [threading.Thread(target=lambda n=n: results.append(work(n))) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == ["done"] * 6
        for workspace in ("w0", "w1"):
            assert len(list(store.timeline(workspace).after(0))) == 60
            assert list(store.timeline(workspace).verify()) == []
        assert list(store.blobs.check()) == []

    # surviving

    def test_everything_is_there_after_reopening(self, tmp_path: Path) -> None:
        if not self.survives:
            pytest.skip("does not outlive its process")
        store = self.open(tmp_path)
        objects = dict(blob(b"%d" % n * 200) for n in range(2000))
        store.save_workspace(_record("w"))
        store.blobs.put(objects.items())
        store.blobs.flush()
        entry = store.timeline("w").append(draft("x", delta=next(iter(objects))))
        store.timeline("w").set_intent(b"intent")
        store.close()
        again = self.open(tmp_path)
        assert dict(again.blobs.get_many(objects)) == objects
        assert again.timeline("w").head() == entry
        assert again.workspaces() == [_record("w").replace(intent=b"intent")]
        assert again.blobs.put(objects.items()) == 0
        again.blobs.flush()
        assert again.timeline("w").append(draft()).prev == entry.hash
        assert list(again.timeline("w").verify()) == []
        again.close()


def _record(id: str, **fields: object) -> WorkspaceRecord:
    given = {"root": b"/work", "dev": 1, "ino": 2, "born_at": 3, "created_at": 4, **fields}
    return WorkspaceRecord(id, **given)  # type: ignore[arg-type]


def _try(lock: object) -> str:
    try:
        with lock:  # type: ignore[attr-defined]
            return "free"
    except StoreLocked:
        return "locked"


def _in_thread(work: object) -> str:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(work()))  # type: ignore[operator]
    thread.start()
    thread.join()
    return results[0]
