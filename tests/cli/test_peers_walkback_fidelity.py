"""Where walkback hangs, fails or keeps less than it was given, and this does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support import Cli
from support.acts import (
    assert_tree,
    broken_by_an_agent,
    changes,
    checkpoint,
    command,
    measured,
    named,
    powerless,
    redo,
    rollback,
    size_of,
)
from support.tree import fingerprint


def test_WB32_a_fifo_hangs_nobody(cli: Cli, project: Path) -> None:
    """FIFOs in the tree are recorded and restored without being opened; ones that an agent made go and come back."""
    os.mkfifo(project / "pipe")
    (project / "pipe").chmod(0o620)
    before = fingerprint(project)
    cli("checkpoint", timeout=20)
    (project / "pipe").unlink()
    os.mkfifo(project / "agents")
    (project / "README.md").unlink()
    os.mkfifo(project / "README.md")
    broken = fingerprint(project)
    cli("status", timeout=20, check=False)
    cli("diff", timeout=20, check=False)
    cli("rollback", timeout=20)
    assert_tree(project, before)
    cli("redo", timeout=20)
    assert_tree(project, broken)
    cli("run", "--", "true", timeout=20)


def test_WB33_a_directory_that_became_a_file_comes_back(cli: Cli, project: Path) -> None:
    """A directory replaced by a file, and a file by a directory, are no reason to fail."""
    before = fingerprint(project)
    checkpoint(cli)
    shutil.rmtree(project / "src")
    (project / "src").write_text("now a file\n")
    (project / "README.md").unlink()
    (project / "README.md").mkdir()
    (project / "README.md" / "inner").write_text("inner\n")
    broken = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


def test_WB34_read_only_directories_are_no_obstacle(cli: Cli, project: Path) -> None:
    """For an ordinary user, a directory that was 0555, or was made 0555 by the agent, comes back exactly."""
    person = powerless(project)
    (project / "src").chmod(0o555)
    before = fingerprint(project)
    checkpoint(person)

    (project / "src").chmod(0o755)
    (project / "src" / "added.py").write_text("added\n")
    (project / "src" / "main.py").write_text("wrecked\n")
    (project / "empty" / "x").write_text("x\n")
    (project / "empty").chmod(0o555)
    broken = fingerprint(project)
    rollback(person)
    assert_tree(project, before)
    redo(person)
    assert_tree(project, broken)


def test_WB35_names_are_bytes(cli: Cli, project: Path) -> None:
    """A name that is not UTF-8 is captured, shown, restored and redone like any other."""
    odd = os.fsencode(project) + b"/caf\xe9-\xff.txt"
    with open(odd, "wb") as file:
        file.write(b"bytes\n")
    before = fingerprint(project)
    checkpoint(cli)
    os.unlink(odd)
    with open(os.fsencode(project) + b"/\xfe", "wb") as file:
        file.write(b"other\n")
    broken = fingerprint(project)
    assert changes(cli) == {"caf\udce9-\udcff.txt": "deleted", "\udcfe": "created"}
    assert cli("status", check=False).out
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, broken)


def test_WB36_an_unreadable_file_of_the_agents_stops_nothing(cli: Cli, project: Path) -> None:
    """The rest is rolled back; the file that could not be read is named and is either still there or comes back."""
    person = powerless(project)
    good = (project / "README.md").read_text()
    checkpoint(person)
    (project / "README.md").write_text("wrecked\n")
    (project / "sealed").write_text("unreadable for its owner\n")
    (project / "sealed").chmod(0)
    answer = person("rollback", "--json", check=False)
    assert answer.code in (0, 1, 6), answer
    assert (project / "README.md").read_text() == good
    assert "sealed" in named(answer.json["report"])
    if not (project / "sealed").exists():
        redo(person)
    (project / "sealed").chmod(0o600)
    assert (project / "sealed").read_text() == "unreadable for its owner\n"


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_WB37_labels_of_any_letters_and_length(cli: Cli, project: Path, locale: str) -> None:
    """Letters of three and four bytes, joined ones, and very long labels never break a command in any locale."""
    env = {"LC_ALL": locale, "LANG": locale, "PYTHONUTF8": None, "PYTHONIOENCODING": None}
    for label in ("日本語のセッション", "👩‍👩‍👧‍👦" * 40, "a" * 5_000, "é\u0301\u202eabc", "two\nlines\tand\x1b[31mred"):
        made = cli("checkpoint", label, "--json", env=env).json["checkpoint"]
        assert made["label"] == label
        for args in (("log",), ("log", "--json"), ("show", made["id"]), ("rollback", made["id"], "--dry-run")):
            answer = cli(*args, env=env)
            assert "\x1b[31m" not in answer.out
    cli("run", "--label", "日本語" * 5, "--", "true", env=env)


def test_WB38_links_owners_times_and_attributes_are_kept(cli: Cli, project: Path) -> None:
    """Hard links stay together; xattrs, ACLs, owners, times of links and directories come back."""
    os.link(project / "data.bin", project / "same.bin")
    try:
        os.setxattr(project / "README.md", "user.origin", b"\x00kept")
        os.setxattr(project / "src", "user.folder", b"too")
    except OSError:
        pytest.skip("the file system of the temporary directory has no user xattrs")
    if os.geteuid() == 0:
        os.chown(project / "src" / "util.py", 1234, 4321)
        os.chown(project / "link", 1234, 4321, follow_symlinks=False)
    os.utime(project / "link", ns=(1, 1_600_000_000_000_000_001), follow_symlinks=False)
    os.utime(project / "src", ns=(1, 1_500_000_000_000_000_002))
    before = fingerprint(project)
    checkpoint(cli)

    (project / "same.bin").write_bytes(b"both changed")
    (project / "data.bin").unlink()
    (project / "README.md").unlink()
    (project / "link").unlink()
    shutil.rmtree(project / "src")
    rollback(cli)
    assert_tree(project, before)
    assert os.path.samefile(project / "same.bin", project / "data.bin")


@pytest.mark.slow
def test_WB40_a_large_file_is_streamed(cli: Cli, project: Path, home: Path) -> None:
    """A file of 700 MB passes through less than 150 MB of memory, on its way in and on its way back."""
    block = os.urandom(1 << 20)
    large = project / "large.bin"
    with large.open("wb") as file:
        for i in range(700):
            file.write(i.to_bytes(8, "little") + block[8:])
    size = large.stat().st_size
    made = measured("checkpoint", "--json", cwd=project)
    assert made.result.code == 0, made.result
    assert made.peak_bytes < 150 << 20
    with large.open("r+b") as file:
        file.seek(300 << 20)
        file.write(b"wrecked")
    back = measured("rollback", "--json", cwd=project)
    assert back.result.code == 0, back.result
    assert back.peak_bytes < 150 << 20
    assert large.stat().st_size == size
    with large.open("rb") as file:
        for i in range(700):
            assert file.read(1 << 20) == i.to_bytes(8, "little") + block[8:]
    large.unlink()
    shutil.rmtree(home)  # 700 MB that need not wait for the end of the session


def test_WB40_small_files_are_not_synced_one_by_one(cli: Cli, project: Path, tmp_path: Path) -> None:
    """A first checkpoint of 3,000 files waits for the disk a few times, not thousands of times."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    (project / "many").mkdir()
    for i in range(3000):
        (project / "many" / str(i)).write_text(f"{i}\n" * 20)
    counts = tmp_path / "syncs"
    for args, limit in ((("checkpoint",), 30), (("rollback",), 60)):
        if args == ("rollback",):
            for i in range(3000):
                (project / "many" / str(i)).write_text("wrecked\n")
        subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-o", counts, "-e", "trace=fsync,fdatasync,syncfs,sync", *command(*args)],
            cwd=project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        syncs = [line for line in counts.read_text().splitlines() if "sync" in line]
        assert 0 < len(syncs) <= limit, f"{args}: {len(syncs)} syncs"


def test_WB41_what_nobody_needs_is_given_back(cli: Cli, project: Path, home: Path) -> None:
    """prune and gc return the bytes of old checkpoints and of states that rollbacks saved; pinned ones stay."""
    cli("init")
    empty = size_of(home)
    (project / "data.bin").write_bytes(os.urandom(1 << 20))
    pinned = checkpoint(cli, "--pin")
    kept = (project / "data.bin").read_bytes()
    for _ in range(8):
        (project / "data.bin").write_bytes(os.urandom(1 << 20))
        checkpoint(cli)
        (project / "data.bin").write_bytes(os.urandom(1 << 20))
        rollback(cli)
    assert size_of(home) - empty > 12 << 20
    cli("prune", "--yes", "--keep-last", "1", "--keep-days", "0")
    cli("gc")
    assert size_of(home) - empty < 5 << 20
    cli("verify")
    rollback(cli, pinned)
    assert (project / "data.bin").read_bytes() == kept


@pytest.mark.parametrize("round", range(4))
def test_WB42_one_store_and_every_acknowledged_entry_is_in_it(cli: Cli, project: Path, round: int) -> None:
    """Eight processes that write at once, into a store that is not there yet, lose nothing of each other."""
    processes = [
        subprocess.Popen(
            command("checkpoint", f"number {i}"), cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        for i in range(8)
    ]
    ids = []
    for process in processes:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        ids.append(out.split()[-1].decode())
    assert len(set(ids)) == 8
    entries = cli("log", "--json", "--all").json["entries"]
    assert set(ids) <= {entry["id"] for entry in entries}
    assert {f"number {i}" for i in range(8)} <= {entry["label"] for entry in entries}


@pytest.mark.parametrize("harm", ["garbage", "empty", "text"])
def test_WB42_corrupt_state_is_never_read_as_empty(cli: Cli, project: Path, home: Path, harm: str) -> None:
    """A store that cannot be read is refused and left as it is; it is not replaced by an empty one."""
    checkpoint(cli)
    broken_by_an_agent(project)
    broken = fingerprint(project)
    database = home / "store.db"
    harmed = {"garbage": os.urandom(database.stat().st_size), "empty": b"", "text": b"[]\n"}[harm]
    database.write_bytes(harmed)
    packs = fingerprint(home / "packs")
    for args in (("rollback",), ("checkpoint",), ("log",), ("gc",), ("prune",)):
        answer = cli(*args, check=False)
        assert answer.code in (10, 13), (args, answer)
    assert database.read_bytes() == harmed
    assert fingerprint(home / "packs") == packs
    assert_tree(project, broken)


def test_WB42_nothing_is_put_into_the_tree(cli: Cli, project: Path) -> None:
    """init, checkpoint, status, diff, log and run leave no file, folder or ignore rule behind in the project."""
    before = fingerprint(project)
    for args in (("init",), ("checkpoint",), ("status",), ("diff",), ("log",), ("run", "--", "true"), ("verify",)):
        cli(*args)
        assert_tree(project, before)
