"""Where Cantrip's undo breaks, and this does not: one test or more per failure that was seen there.

CT-11 and CT-12 are told in tests/security/test_git_has_no_say.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from support import Cli
from support.acts import assert_tree, checkpoint, command, git, paths, powerless, redo, reprieve, rollback
from support.settings import write_accepted
from support.tree import fingerprint


def test_CT01_changed_ignore_rules_delete_nothing(cli: Cli, project: Path) -> None:
    """An agent that empties .gitignore does not make the next rollback delete what was ignored before."""
    (project / ".gitignore").write_text(".env\nnode_modules/\n")
    (project / "node_modules").mkdir()
    (project / "node_modules" / "x.js").write_text("x\n")
    git("init", "-q", cwd=project)
    before = fingerprint(project)
    checkpoint(cli)
    (project / ".gitignore").write_text("")
    (project / "README.md").write_text("wrecked\n")
    rollback(cli)
    assert_tree(project, before)


def test_CT01_what_the_checkpoint_never_saw_is_never_deleted(cli: Cli, project: Path) -> None:
    """Paths that were excluded at the checkpoint stay, also when the agent removes the exclude rule meanwhile."""
    write_accepted(project, 'exclude = ["node_modules/", "*.secret"]\n')
    (project / "node_modules").mkdir()
    (project / "node_modules" / "x.js").write_text("x\n")
    (project / "a.secret").write_text("not for the store\n")
    before = fingerprint(project)
    made = cli("checkpoint", "--json", check=False).json["checkpoint"]
    assert {"node_modules", "a.secret"} <= {path.rstrip("/") for path in paths(made["gaps"])}
    (project / "reprieve.toml").unlink()
    (project / "README.md").write_text("wrecked\n")
    answer = cli("rollback", "--json", check=False)
    assert answer.code in (0, 1, 6), answer
    assert_tree(project, before)


def test_CT02_what_a_person_wrote_after_an_undo_survives_redo(cli: Cli, project: Path) -> None:
    """An edited file stops redo with a conflict; a new file elsewhere stays where it is."""
    checkpoint(cli)
    (project / "src" / "main.py").write_text("the agent's\n")
    rollback(cli)
    (project / "src" / "main.py").write_text("the person's\n")
    (project / "human.txt").write_text("the person's too\n")
    mine = fingerprint(project)
    answer = cli("redo", "--json", check=False)
    assert answer.code == 4, answer
    assert "src/main.py" in answer.out
    assert_tree(project, mine)


def test_CT02_a_new_file_of_a_person_is_no_obstacle_for_redo(cli: Cli, project: Path) -> None:
    """Redo moves only what the rollback moved."""
    checkpoint(cli)
    (project / "src" / "main.py").write_text("the agent's\n")
    rollback(cli)
    (project / "human.txt").write_text("the person's\n")
    redo(cli)
    assert (project / "src" / "main.py").read_text() == "the agent's\n"
    assert (project / "human.txt").read_text() == "the person's\n"


def test_CT03_if_the_present_cannot_be_saved_nothing_is_rolled_back(cli: Cli, project: Path) -> None:
    """A safety checkpoint that does not fit on the disk stops the rollback before the first change."""
    checkpoint(cli)
    (project / "README.md").write_text("hours of work\n")
    (project / "new.bin").write_bytes(os.urandom(3 << 20))
    mine = fingerprint(project)
    answer = reprieve("rollback", "--json", cwd=project, check=False, bytes=1 << 20)
    assert answer.code == 10, answer
    assert answer.json["error"]["code"] == "store_failed"
    assert_tree(project, mine)
    rollback(cli)
    redo(cli)
    assert_tree(project, mine)


def test_CT07_an_ignored_file_that_the_agent_wiped_comes_back(cli: Cli, project: Path) -> None:
    """.env is in .gitignore and is restored all the same."""
    git("init", "-q", cwd=project)
    before = fingerprint(project)
    checkpoint(cli)
    (project / ".env").write_text("")
    rollback(cli)
    assert_tree(project, before)
    assert (project / ".env").read_text() == "TOKEN=secret\n"


def test_CT08_nested_repositories_are_captured_with_their_contents(cli: Cli, project: Path) -> None:
    """Edits in nested repositories, with and without commits, are taken back; a clone made by the agent goes."""
    for name in ("with-commits", "without"):
        (project / name).mkdir()
        git("init", "-q", cwd=project / name)
        (project / name / "f").write_text("good\n")
    git("add", "-A", cwd=project / "with-commits")
    git("commit", "-q", "-m", "one", cwd=project / "with-commits")
    git("init", "-q", cwd=project)
    before = fingerprint(project)
    checkpoint(cli)

    for name in ("with-commits", "without"):
        (project / name / "f").write_text("bad\n")
    git("commit", "-q", "-am", "two", cwd=project / "with-commits")
    git("clone", "-q", "with-commits", "cloned", cwd=project)
    broken = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    assert git("log", "--format=%s", cwd=project / "with-commits") == "one\n"
    redo(cli)
    assert_tree(project, broken)
    git("fsck", cwd=project / "cloned")


def test_CT09_an_unreadable_folder_does_not_turn_undo_off(cli: Cli, project: Path) -> None:
    """An ordinary user's checkpoint is taken without it, names it, and the turn can be undone."""
    person = powerless(project)
    (project / "sealed").mkdir()
    (project / "sealed" / "x").write_text("x\n")
    (project / "sealed").chmod(0)
    before = fingerprint(project)
    made = person("checkpoint", "--json", check=False)
    assert made.code in (0, 1), made
    assert "sealed" in paths(made.json["checkpoint"]["gaps"])
    (project / "README.md").write_text("wrecked\n")
    (project / "added").write_text("added\n")
    rollback(person)
    assert_tree(project, before)


def test_CT10_a_killed_checkpoint_leaves_no_lock(cli: Cli, project: Path, home: Path) -> None:
    """Killed at thirty moments of its life, the next checkpoint goes on at once and everything is sound."""
    for i in range(300):
        (project / f"{i}.txt").write_text(f"{i}\n" * 100)
    first = checkpoint(cli)
    for attempt in range(30):
        for i in range(attempt, 300, 30):
            (project / f"{i}.txt").write_text(f"{attempt}\n" * 100)
        process = subprocess.Popen(
            command("checkpoint", "killed"), cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        time.sleep(0.04 + attempt * 0.004)
        process.send_signal(signal.SIGKILL)
        process.wait()
    begun = time.monotonic()
    before = fingerprint(project)
    last = checkpoint(cli, timeout=30)
    assert time.monotonic() - begun < 20
    cli("verify")
    rollback(cli, first)
    rollback(cli, last)
    assert_tree(project, before)


def test_CT10_a_process_that_died_holding_the_lock_holds_it_no_more(cli: Cli, project: Path, home: Path) -> None:
    """A rollback that is stopped half-way and killed blocks nobody; lock files that are left over mean nothing."""
    checkpoint(cli)
    (project / "data.bin").write_bytes(os.urandom(8 << 20))
    process = subprocess.Popen(
        command("checkpoint"), cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    time.sleep(0.05)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list((home / "locks").iterdir())
    checkpoint(cli, timeout=20)
    git_lock = project / ".git"
    git_lock.mkdir()
    (git_lock / "index.lock").write_text("")
    checkpoint(cli, timeout=20)


def test_CT13_modes_empty_folders_links_and_line_ends_are_exact(cli: Cli, project: Path) -> None:
    """What git would round off: 0600, empty directories, hard links, CRLF under text=auto."""
    git("init", "-q", cwd=project)
    (project / ".gitattributes").write_text("* text=auto\n")
    (project / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (project / "private").write_text("private\n")
    (project / "private").chmod(0o600)
    (project / "hollow" / "hollow").mkdir(parents=True)
    os.link(project / "private", project / "private-too")
    before = fingerprint(project)
    checkpoint(cli)
    (project / "crlf.txt").write_bytes(b"one\ntwo\n")
    (project / "private").unlink()
    shutil.rmtree(project / "hollow")
    rollback(cli)
    assert_tree(project, before)
