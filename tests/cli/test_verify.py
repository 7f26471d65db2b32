"""`reprieve verify`."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from support import Cli


def damage(home: Path) -> None:
    """Flip bits in the middle of the stored content."""
    pack = max((home / "packs").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    for at in range(len(data) // 3, len(data) // 3 + 200):
        data[at] ^= 0x55
    pack.write_bytes(data)


def test_all_is_well(cli: Cli) -> None:
    cli("checkpoint")
    answer = cli("verify", "--json").json
    assert answer["objects"] > 3
    assert (answer["entries"], answer["problems"]) == (1, [])
    assert "all is well" in cli("verify").out


def test_damage_is_exit_13_and_named(cli: Cli, home: Path) -> None:
    cli("checkpoint")
    damage(home)
    result = cli("verify", "--json", check=False)
    assert result.code == 13
    assert result.json["error"]["code"] == "store_corrupted"
    assert result.json["problems"]


def test_the_next_checkpoint_heals_what_is_still_in_the_tree(cli: Cli, home: Path) -> None:
    cli("checkpoint")
    damage(home)
    cli("verify", check=False)
    cli("checkpoint")
    assert cli("verify", check=False).code == 0


def test_the_next_checkpoint_heals_a_piece_of_a_large_file(cli: Cli, project: Path, home: Path) -> None:
    """The tree names the list of its pieces; that list is whole."""
    (project / "large").write_bytes(random.Random(5).randbytes(4_000_000))
    cli("checkpoint")
    damage(home)
    assert "(large)" in cli("verify", check=False).err
    cli("checkpoint")
    assert cli("verify", check=False).code == 0


@pytest.mark.parametrize("share", ["10%", "0.5", "1", "100%"])
def test_a_sample(cli: Cli, share: str) -> None:
    cli("checkpoint")
    assert cli("verify", "--sample", share, "--json").json["objects"] >= 1


@pytest.mark.parametrize("share", ["0", "two", "150%", "-1", "nan"])
def test_what_is_no_share_is_exit_2(cli: Cli, share: str) -> None:
    assert cli("verify", f"--sample={share}", check=False).code == 2


@pytest.mark.parametrize("value", ["text", 5])
def test_a_full_tree_that_is_no_id_any_more_is_damage_that_is_named(
    cli: Cli, project: Path, home: Path, value: object
) -> None:
    """SQLite keeps no checksums, so a flipped bit may make anything of it; that is no bug of ours."""
    first = cli("checkpoint", "--json").json["checkpoint"]["id"]
    (project / "README.md").write_text("later")
    cli("checkpoint")
    with contextlib.closing(sqlite3.connect(home / "store.db")) as db, db:
        db.execute("INSERT INTO fulls SELECT workspace, max(seq), ? FROM entries", (value,))
    assert cli("verify", check=False).code == 13
    assert cli("rollback", first, check=False).code in (0, 13)
