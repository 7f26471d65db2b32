"""The index on disk: a cache that must never be in the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from reprieve.files import tree
from reprieve.files.index import load_index, save_index


def test_one_that_could_not_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w1"
    save_index(str(path), tree.pack([], tag=b"a" * 16))

    def full(fd: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="full"):
            save_index(str(path), tree.pack([], tag=b"b" * 16))
    assert os.listdir(tmp_path) == ["w1"]
    assert load_index(str(path), b"a" * 16) is not None
