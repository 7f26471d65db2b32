"""What two indexes of git have staged is compared whole, whatever the repository hashes with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reprieve.files.gitindex import essence


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("hashing", ["sha1", "sha256"])
def test_the_last_staged_file_counts_as_much_as_the_first(tmp_path: Path, hashing: str, version: str) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    def index() -> bytes | None:
        return essence((tmp_path / ".git" / "index").read_bytes())

    git("init", "--quiet", f"--object-format={hashing}")
    git("config", "index.version", version)
    names = [f"a-rather-long-name-of-a-file-{number}.txt" for number in range(8)]
    for name in names:
        (tmp_path / name).write_text("first")
    git("add", ".")
    before = index()
    assert before is not None and all(name.encode() in before for name in names)
    (tmp_path / names[0]).touch()
    git("update-index", "--refresh")
    assert index() == before
    (tmp_path / names[-1]).write_text("staged by a person")
    git("add", names[-1])
    assert index() != before


def test_an_index_that_is_cut_off_cannot_be_read(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "a").write_text("a")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    data = (tmp_path / ".git" / "index").read_bytes()
    assert essence(data) is not None
    assert essence(data[:-1]) is None and essence(data + b"x") is None
