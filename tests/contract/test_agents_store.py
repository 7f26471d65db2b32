"""Where what agents did is kept (C1 to C3, C5, C6); C4 is in test_agents_git.py."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reprieve.errors import ReprieveError
from support import Cli
from support.acts import assert_tree, command, size_of
from support.desk import TEXT, Desk
from support.tree import fingerprint


@pytest.fixture
def desk(project: Path) -> Iterator[Desk]:
    (project / "text").write_text(TEXT)
    with Desk(project) as desk:
        yield desk


def test_C1_the_store_survives_the_project_and_is_closed_to_others(cli: Cli, project: Path, home: Path) -> None:
    """It lies outside, only its owner may look, and `rm -rf` of everything in the folder comes back, .git included."""
    before = fingerprint(project)
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    assert home not in project.parents and not home.is_relative_to(project)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for path in home.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    cli("run", "--label", "agent", "--", "sh", "-c", "find . -mindepth 1 -delete")
    assert list(project.iterdir()) == []
    cli("rollback", start)
    assert_tree(project, before)


def test_C2_the_same_content_is_kept_once(cli: Cli, project: Path, home: Path, tmp_path: Path) -> None:
    """Across checkpoints, steps, actors and projects."""
    data = bytes(range(256)) * 8192  # 2 MB
    (project / "large").write_bytes(data[::-1])
    cli("checkpoint")
    once = size_of(home)
    with Desk(project) as desk:
        for n in range(5):
            desk.agent(f"mv large large{n} && cp large{n} large && rm large{n}", step=f"call:{n}")
    other = tmp_path / "other"
    shutil.copytree(project, other, symlinks=True)
    cli("checkpoint", cwd=other)
    assert size_of(home) < once + 400_000


def test_C3_a_limit_frees_bytes_and_never_takes_what_is_pinned_or_last(cli: Cli, project: Path, home: Path) -> None:
    """What was dropped is said; the pinned and the last good point still come back."""
    ids = []
    for n in range(6):
        (project / "data").write_bytes(random.Random(n).randbytes(40_000 * (n + 1)))
        ids.append(cli("checkpoint", "--json", *(["--pin"] if n == 1 else [])).json["checkpoint"]["id"])
    before = size_of(home)
    gone = cli("prune", "--keep-last", "1", "--keep-days", "0", "--yes", "--json").json
    dropped = {entry["id"] for entry in gone["pruned"]}
    assert dropped == set(ids) - {ids[1], ids[-1]}
    assert gone["bytes"] > 0 and size_of(home) < before
    cli("run", "--label", "agent", "--", "rm", "data")
    cli("rollback", ids[-1])
    assert (project / "data").stat().st_size == 40_000 * 6
    cli("rollback", ids[1], "--everything")
    assert (project / "data").stat().st_size == 40_000 * 2
    refused = cli("rollback", ids[0], "--json", check=False)
    assert refused.code != 0 and "pruned" in refused.out


def test_C5_verify_finds_damage_and_names_it(cli: Cli, project: Path, home: Path) -> None:
    """And a rollback that would need the damaged content touches nothing."""
    (project / "only").write_bytes(bytes(range(256)) * 300)
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    cli("run", "--label", "agent", "--", "sh", "-c", "rm only; echo x > made")
    pack = max((home / "packs").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    for at in range(200, len(data) - 200, 97):
        data[at] ^= 0x55
    pack.write_bytes(data)
    found = cli("verify", "--json", check=False)
    assert found.code == 13 and found.json["problems"]
    before = fingerprint(project)
    refused = cli("rollback", start, "--json", check=False)
    assert refused.code == 13, refused
    assert_tree(project, before)


def test_C6_two_agents_at_once_lose_nothing(cli: Cli, project: Path) -> None:
    """Two runs in one folder at the same time: both end well, every file is there, none is called a person's."""
    (project / "text").write_text(TEXT)
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    before = fingerprint(project)
    script = "for n in 1 2 3 4 5; do echo $n > {0}$n; sleep 0.05; done"
    runs = [
        subprocess.Popen(command("run", "--label", who, "--", "sh", "-c", script.format(who)), cwd=project)
        for who in ("a", "b")
    ]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    found = {c["path"]: c["actor"] for c in cli("status", "--since", start, "--json").json["changes"]}
    assert set(found) == {f"{who}{n}" for who in "ab" for n in range(1, 6)}
    assert all("run:" in actor and "person" not in actor for actor in found.values()), found
    cli("rollback", start)
    assert_tree(project, before)


@pytest.mark.parametrize("vain", ["conflict", "only", "redo", "no change"])
def test_C6_a_program_that_came_to_nothing_keeps_nobody_from_collecting(desk: Desk, vain: str) -> None:
    """It has read what changed and recorded nothing; while it idles, gc is not locked out."""
    start = desk.checkpoint()
    if vain == "conflict":
        desk.agent("echo agent > text")
        (desk.root / "text").write_text("mine\n")
        desk.refused(start)
    elif vain == "only":
        (desk.root / "other").write_text("mine\n")
        desk.ws.rollback(start, only=[b"text"])
    elif vain == "redo":
        (desk.root / "other").write_text("mine\n")
        with pytest.raises(ReprieveError, match="nothing to redo"):
            desk.ws.redo()
    else:
        os.utime(desk.root / "text")
        desk.ws.checkpoint(only_changes=True)

    def collect() -> None:
        with desk.ws.store.gc_lock(wait_s=0.1):
            pass

    with ThreadPoolExecutor() as another:
        another.submit(collect).result()
