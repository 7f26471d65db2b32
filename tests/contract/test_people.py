"""People at work on the same tree: what they do during a rollback, or after it, is never lost (K06 to K12)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import Cli, Result
from support.acts import assert_tree, changes, checkpoint, command, paths, redo, rollback, wait_until
from support.shims import build, each_moment, moments
from support.tree import erase, fingerprint

MINE = "saved by a person in this very moment\n"


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that can hold a process at an exact moment."""
    return build(tmp_path_factory.mktemp("shim"))


class Table:
    """A project and its store that can be set back to how they were, so that each moment starts alike."""

    def __init__(self, project: Path, home: Path, aside: Path) -> None:
        self.project, self.home, self.aside = project, home, aside

    def remember(self) -> None:
        """This is the state to set back to."""
        shutil.copytree(self.home, self.aside / "home", symlinks=True, ignore=shutil.ignore_patterns("helper"))

    def set_back(self) -> None:
        """As remembered: the store only; the tree is the caller's to build again."""
        shutil.rmtree(self.home)
        shutil.copytree(self.aside / "home", self.home, symlinks=True, copy_function=shutil.copy2)


def wreck(project: Path) -> None:
    """What the agent did: edits, a deletion, a new folder."""
    (project / "README.md").write_text("the agent's readme\n")
    (project / "src" / "main.py").write_text("the agent's main\n")
    (project / "src" / "util.py").unlink(missing_ok=True)
    (project / "made").mkdir(exist_ok=True)
    (project / "made" / "x.txt").write_text("made by the agent\n")


def mend(project: Path, good: dict[str, str]) -> None:
    """The tree of the checkpoint, put there by hand."""
    if (project / "made").exists():
        erase(project / "made")
    for name, text in good.items():
        (project / name).write_text(text)


def is_kept(cli: Cli, project: Path, answer: Result, path: str, text: str) -> bool:
    """The person's text is in the tree, or comes back by redo or from a checkpoint; and the answer named the file."""
    if any(text == p.read_text(errors="replace") for p in project.rglob("*") if p.is_file() and not p.is_symlink()):
        return True
    for entry in cli("log", "--json", "--all").json["entries"]:
        cli("revert", path, "--to", entry["id"], check=False)
        if (project / path).exists() and (project / path).read_text() == text:
            return path in answer.out
    return False


@pytest.mark.slow
@pytest.mark.parametrize("path", ["README.md", "src/util.py", "made/x.txt"])
def test_K06_a_save_at_any_moment_of_a_rollback_is_kept(
    cli: Cli, project: Path, home: Path, shim: Path, tmp_path: Path, path: str
) -> None:
    """A person saves a file that is being replaced, brought back or deleted, in each moment of the rollback.

    Whatever the moment: the text is in the tree, or saved and named, and the tree is whole.
    """
    good = {name: (project / name).read_text() for name in ("README.md", "src/main.py", "src/util.py")}
    first = checkpoint(cli)
    wreck(project)
    table = Table(project, home, tmp_path / "aside")
    table.aside.mkdir()
    table.remember()
    count, answer = moments(shim, "rollback", first, "--json", cwd=project)
    assert answer.code == 0, answer
    assert count > 3

    placed = []

    def save() -> None:
        try:
            (project / path).write_text(MINE)
            placed.append(True)
        except FileNotFoundError:
            pass  # the folder is gone already: the editor says so

    def prepare() -> None:
        table.set_back()
        mend(project, good)
        wreck(project)
        placed.clear()

    lost = []
    for moment, answer in each_moment(shim, count, prepare, save, "rollback", first, "--json", cwd=project):
        if answer.code not in (0, 1, 4, 6):
            lost.append(f"moment {moment}: exit {answer.code} {answer.out} {answer.err}")
        elif placed and not is_kept(cli, project, answer, path, MINE):
            lost.append(f"moment {moment} of {count}: the person's {path} is gone; {answer.out}")
    assert lost == []


@pytest.mark.slow
def test_K06_a_save_into_a_file_with_several_names_is_kept(
    cli: Cli, project: Path, home: Path, shim: Path, tmp_path: Path
) -> None:
    """We set its time under one name and remove another: what a person writes meanwhile is told apart from that."""
    for name in ("x", "y"):
        os.link(project / "README.md", project / name)
    first = checkpoint(cli)
    old = (project / "README.md").read_text()
    table = Table(project, home, tmp_path / "aside")
    table.aside.mkdir()

    def prepare() -> None:
        table.set_back()
        for name in ("README.md", "x", "y", "z"):
            (project / name).unlink(missing_ok=True)
        (project / "README.md").write_text(old)
        for name in ("x", "y", "z"):
            os.link(project / "README.md", project / name)

    table.remember()
    prepare()
    count, answer = moments(shim, "rollback", first, "--json", cwd=project)
    assert answer.code == 0, answer

    lost = []
    for moment, answer in each_moment(
        shim, count, prepare, lambda: (project / "y").write_text(MINE), "rollback", first, "--json", cwd=project
    ):
        if answer.code not in (0, 1, 4, 6) or not is_kept(cli, project, answer, "y", MINE):
            lost.append(f"moment {moment} of {count}: {answer.code} {answer.out}")
    assert lost == []


@pytest.mark.slow
def test_K07_a_new_file_in_a_folder_that_is_being_removed_is_kept(
    cli: Cli, project: Path, home: Path, shim: Path, tmp_path: Path
) -> None:
    """In whatever moment a person puts a file into a folder that goes, the file stays, or is saved and named."""
    good = {name: (project / name).read_text() for name in ("README.md", "src/main.py", "src/util.py")}
    first = checkpoint(cli)
    wreck(project)
    table = Table(project, home, tmp_path / "aside")
    table.aside.mkdir()
    table.remember()
    count, _ = moments(shim, "rollback", first, "--json", cwd=project)
    placed = []

    def save() -> None:
        try:
            (project / "made" / "mine.txt").write_text(MINE)
            placed.append(True)
        except FileNotFoundError:
            pass  # the folder is gone already: nothing to lose

    def prepare() -> None:
        table.set_back()
        mend(project, good)
        wreck(project)
        placed.clear()

    lost = []
    for moment, answer in each_moment(shim, count, prepare, save, "rollback", first, "--json", cwd=project):
        assert answer.code in (0, 1, 4, 6), answer
        if placed and not is_kept(cli, project, answer, "made/mine.txt", MINE):
            lost.append(f"moment {moment} of {count}: {answer.out}")
    assert lost == []


def test_K08_an_edit_after_a_rollback_is_never_lost_by_redo(cli: Cli, project: Path) -> None:
    """Edited, deleted, re-created as another kind, or made where redo wants to make: refused with names, untouched."""
    checkpoint(cli)
    wreck(project)
    rollback(cli)
    for act in (
        lambda: (project / "README.md").write_text(MINE),
        lambda: (project / "README.md").unlink(),
        lambda: ((project / "README.md").unlink(), (project / "README.md").mkdir()),
        lambda: ((project / "made").mkdir(), (project / "made" / "x.txt").write_text(MINE)),
    ):
        good = fingerprint(project)
        data = (project / "README.md").read_bytes()
        st = (project / "README.md").stat()
        top = project.stat()
        act()
        mine = fingerprint(project)
        answer = cli("redo", "--json", check=False)
        assert answer.code == 4, answer
        assert "README.md" in answer.out or "made/x.txt" in answer.out
        assert_tree(project, mine)
        # and back to how the rollback left it, for the next one
        if (project / "made").exists():
            erase(project / "made")
        if (project / "README.md").is_dir():
            (project / "README.md").rmdir()
        (project / "README.md").write_bytes(data)
        os.utime(project / "README.md", ns=(st.st_atime_ns, st.st_mtime_ns))
        os.utime(project, ns=(top.st_atime_ns, top.st_mtime_ns))
        assert_tree(project, good)
    redo(cli)
    assert (project / "README.md").read_text() == "the agent's readme\n"


def test_K10_a_rollback_under_a_running_command_is_refused(cli: Cli, project: Path, tmp_path: Path) -> None:
    """While `run` is active a rollback says so, with the process id, and touches nothing; afterwards it works."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    before = fingerprint(project)
    process = subprocess.Popen(
        command("run", "--label", "long", "--", "sh", "-c", f"echo wrecked > README.md; read x < {gate}; exit 3"),
        cwd=project,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (project / "README.md").read_text() == "wrecked\n", what="the command to begin")
        during = fingerprint(project)
        begun = time.monotonic()
        answer = cli("rollback", "--json", check=False)
        assert time.monotonic() - begun < 30
        assert answer.code in (5, 12), answer
        assert str(process.pid) in answer.out
        assert_tree(project, during)
    finally:
        with gate.open("w") as file:
            file.write("go\n")
        assert process.wait(timeout=30) == 3
    rollback(cli, "step:long")
    assert_tree(project, before)


def test_K10_a_killed_run_blocks_nobody(cli: Cli, project: Path, tmp_path: Path) -> None:
    """A `run` that was killed with its command is over: the next rollback works, and takes its changes back."""
    checkpoint(cli)
    before = fingerprint(project)
    process = subprocess.Popen(
        command("run", "--", "sh", "-c", "echo wrecked > README.md; exec sleep 60"),
        cwd=project,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: (project / "README.md").read_text() == "wrecked\n", what="the command to begin")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    rollback(cli)
    assert_tree(project, before)


def test_K11_a_daemon_left_behind_neither_hangs_run_nor_hides(cli: Cli, project: Path, tmp_path: Path) -> None:
    """`run` ends with the command and its exit code; what its child writes later shows up as a change."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    said = tmp_path / "said"
    program = f"(read x < {gate}; echo late > late.txt) & echo now > now.txt; exit 7"
    with said.open("wb") as out:
        done = subprocess.run(
            command("run", "--label", "daemon", "--", "sh", "-c", program),
            cwd=project,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=30,
            check=False,
        )
    assert done.returncode == 7
    assert changes(cli) == {"now.txt": "created"}
    with gate.open("w") as file:
        file.write("go\n")
    wait_until(lambda: (project / "late.txt").exists() and bool((project / "late.txt").read_text()), what="late.txt")
    assert changes(cli) == {"now.txt": "created", "late.txt": "created"}
    sealed = next(entry for entry in cli("log", "--json").json["entries"] if entry["label"] == "daemon")
    assert changes(cli, "--since", sealed["id"]) == {"late.txt": "created"}
    rollback(cli, "step:daemon")
    assert not (project / "now.txt").exists()


def test_K12_editors_cause_no_false_conflict(cli: Cli, project: Path) -> None:
    """Swap files, backups, probes and atomic saves of the same bytes do not stop a redo, and stay where they are."""
    checkpoint(cli)
    wreck(project)
    wrecked = {p: (project / p).read_bytes() for p in ("README.md", "src/main.py")}
    rollback(cli)

    readme = project / "README.md"
    (project / ".README.md.swp").write_bytes(b"b0VIM 9.0" + bytes(1000))
    (project / "4913").write_text("")
    (project / "4913").unlink()
    (project / ".#README.md").symlink_to("person@machine.1234")
    data, st = readme.read_bytes(), readme.stat()
    saved = project / "README.md~new"
    saved.write_bytes(data)  # saved again without a change, atomically: a new inode with the same bytes
    saved.chmod(st.st_mode & 0o7777)
    saved.rename(readme)

    redo(cli)
    for name, content in wrecked.items():
        assert (project / name).read_bytes() == content
    assert (project / ".README.md.swp").exists()
    assert os.path.lexists(project / ".#README.md")


def test_K12_an_atomic_save_is_an_edit_like_any_other(cli: Cli, project: Path) -> None:
    """A save by rename is seen as a modification of the file, not as a deletion and a creation."""
    checkpoint(cli)
    new = project / ".README.md.tmp"
    new.write_text("saved\n")
    new.rename(project / "README.md")
    assert changes(cli) == {"README.md": "modified"}
    report = rollback(cli)
    assert paths(report["restored"]) >= {"README.md"}
    assert report["deleted"] == []
