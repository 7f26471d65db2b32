"""Restore by itself, with moves that no plan of ours would hand over."""

from __future__ import annotations

import os
from pathlib import Path

from reprieve.files import native, tree
from reprieve.files.restore import Restore
from reprieve.model.entry import FILE, Entry
from reprieve.model.reporter import Reporter
from reprieve.store.memory import MemoryStore


def test_two_contents_with_one_number_are_written_as_two_files(tmp_path: Path) -> None:
    """Whatever a plan says, no content is dropped because another has the same group."""
    store = MemoryStore(reporter=Reporter())
    moves: tree.Delta = []
    for name, data, mode in (
        (b"a", b"one", 0o644),
        (b"b", b"two", 0o644),
        (b"c", b"two", 0o644),
        (b"d", b"two", 0o600),
    ):
        content = native.sha256(data)
        store.blobs.put([(content, data)])
        entry = Entry(FILE, mode, os.geteuid(), os.getegid(), len(data), content=content, link=7)
        moves.append((name, None, entry))
    with store.transaction():
        store.blobs.flush()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        restore = Restore(
            fd,
            moves,
            index=tree.pack([(b"", Entry(b"d", 0o755, 0, 0), tree.NO_STAT, 0)]),
            blobs=store.blobs,
            stage_name=b".reprieve-x",
            reporter=Reporter(),
        )
        restore.prepare()
        restore.apply()
        restore.settle(lambda: None)
    finally:
        os.close(fd)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "one", "b": "two", "c": "two", "d": "two"}
    assert (tmp_path / "b").samefile(tmp_path / "c") and not (tmp_path / "b").samefile(tmp_path / "d")
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o600
