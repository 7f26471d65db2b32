"""What is left out, what time it is, and names that look like ours or like options (F38 to F41, F44, F45, F48)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support import Cli
from support.acts import assert_tree, changes, checkpoint, git, named, paths, redo, rollback, script
from support.settings import write_accepted
from support.shims import build
from support.tree import fingerprint

# --- git inside the tree is data --------------------------------------------------------------------------------


def commit(folder: Path, message: str) -> None:
    """Everything in the folder, committed."""
    git("add", "-A", cwd=folder)
    git("commit", "-q", "--allow-empty", "-m", message, cwd=folder)


def test_F38_repositories_of_every_form_are_files(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Nested, bare, submodule and worktree: captured with their .git, never renamed, fsck clean after a rollback."""
    git("init", "-q", cwd=project)
    nested, bare, library = project / "nested", project / "bare.git", tmp_path / "library"
    for folder in (nested, bare, library):
        folder.mkdir()
    git("init", "-q", cwd=library)
    (library / "l").write_text("library\n")
    commit(library, "library")
    git("init", "-q", "--bare", cwd=bare)
    git("init", "-q", cwd=nested)
    (nested / "n").write_text("nested\n")
    commit(nested, "nested")
    git("push", "-q", str(bare), "HEAD:refs/heads/main", cwd=nested)
    git("worktree", "add", "-q", str(project / "tree-of-nested"), "-b", "side", cwd=nested)
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "sub", cwd=project)
    (project / ".gitignore").write_text("nested\nbare.git\ntree-of-nested\n.env\n")
    commit(project, "all")
    assert (project / "sub" / ".git").is_file()
    before = fingerprint(project)
    checkpoint(cli)

    (nested / "n").write_text("wrecked\n")
    commit(nested, "by the agent")
    git("push", "-q", "-f", str(bare), "HEAD:refs/heads/main", cwd=nested)
    (project / "sub" / "l").write_text("wrecked\n")
    commit(project / "sub", "by the agent")
    shutil.rmtree(project / "tree-of-nested")
    commit(project, "by the agent")
    git("reset", "-q", "--hard", "HEAD~1", cwd=project)
    rollback(cli)
    assert_tree(project, before)
    for folder in (project, nested, bare, project / "sub", project / "tree-of-nested"):
        git("fsck", "--strict", cwd=folder)
    assert git("log", "--format=%s", cwd=nested) == "nested\n"
    assert not list(project.rglob(".git_disabled*"))


COMMITTER = """
import os, subprocess, sys
env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "gc.auto=0"]
print("ready", flush=True)
i = 0
while not os.path.exists(".git/enough"):
    i += 1
    with open("busy.txt", "w") as file: file.write(f"{i}\\n" * 200)
    subprocess.run(["git", *who, "add", "busy.txt"], env=env, capture_output=True)
    subprocess.run(["git", *who, "commit", "-q", "-m", f"number {i}"], env=env, capture_output=True)
    if i % 5 == 0:
        subprocess.run(["git", *who, "gc", "-q", "--prune=now"], env=env, capture_output=True)
"""


def test_F39_a_lock_of_gits_is_told_and_captured_as_it_is(cli: Cli, project: Path) -> None:
    """With index.lock present a checkpoint works; it does not remove the lock, and rollback is exact."""
    git("init", "-q", cwd=project)
    commit(project, "first")
    (project / ".git" / "index.lock").write_bytes(b"")
    before = fingerprint(project)
    checkpoint(cli)
    assert (project / ".git" / "index.lock").exists()
    (project / ".git" / "index.lock").unlink()
    (project / "README.md").write_text("changed\n")
    commit(project, "second")
    rollback(cli)
    assert_tree(project, before)


@pytest.mark.slow
def test_F39_git_at_work_during_checkpoints(cli: Cli, project: Path) -> None:
    """While git commits and repacks, checkpoints succeed; the repository that comes back is one that fsck accepts.

    A repository that was captured in the middle of a commit or gc is one that a crash could have left: its history
    must be whole, loose ends are allowed.
    """
    git("init", "-q", cwd=project)
    commit(project, "first")
    taken = []
    with script(COMMITTER, cwd=project) as committer:
        for _ in range(6):
            made = cli("checkpoint", "--json", check=False, timeout=60)
            assert made.code in (0, 1), made
            warned = bool(made.json["checkpoint"]["gaps"]) or made.code == 1 or bool(made.err)
            taken.append((made.json["checkpoint"]["id"], warned))
        # the program is heard out: a git that outlived it would write into what is taken back
        (project / ".git" / "enough").touch()
        assert committer.wait(60) == 0
    for id, warned in taken:
        answer = cli("rollback", id, check=False)
        assert answer.code in (0, 1, 6), answer
        if not warned:
            git("fsck", "--connectivity-only", cwd=project)
    last = checkpoint(cli)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/wrecked\n")
    rollback(cli, last)


# --- what is left out -------------------------------------------------------------------------------------------


def test_F40_dependencies_and_build_output_are_included_by_default(cli: Cli, project: Path) -> None:
    """node_modules, .venv and build output are protected unless a person says otherwise."""
    for name in ("node_modules/a/index.js", ".venv/bin/python", "build/out.o", "dist/app.js", "target/x"):
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text(name)
    before = fingerprint(project)
    made = cli("checkpoint", "--json").json["checkpoint"]
    assert made["gaps"] == []
    for name in ("node_modules", ".venv", "build", "dist", "target"):
        shutil.rmtree(project / name)
    rollback(cli)
    assert_tree(project, before)


def test_F40_a_rollback_never_touches_what_is_excluded(cli: Cli, project: Path) -> None:
    """Excluded paths are gaps: not captured, not deleted, not restored, whatever happens around them."""
    write_accepted(project, 'exclude = ["node_modules/", "*.o", "/build"]\n')
    (project / "node_modules" / "a").mkdir(parents=True)
    (project / "node_modules" / "a" / "index.js").write_text("one\n")
    (project / "build").mkdir()
    (project / "build" / "x").write_text("one\n")
    (project / "src" / "main.o").write_text("one\n")
    made = cli("checkpoint", "--json", check=False).json["checkpoint"]
    gaps = {path.rstrip("/") for path in paths(made["gaps"])}
    assert {"node_modules", "build", "src/main.o"} <= gaps
    (project / "node_modules" / "a" / "index.js").write_text("two\n")
    (project / "node_modules" / "b").mkdir()
    (project / "node_modules" / "b" / "index.js").write_text("new\n")
    (project / "src" / "main.o").write_text("two\n")
    (project / "src" / "new.o").write_text("new\n")
    (project / "build" / "x").unlink()
    (project / "README.md").write_text("wrecked\n")
    answer = cli("rollback", "--json", check=False)
    assert answer.code in (0, 1), answer
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"
    assert (project / "node_modules" / "a" / "index.js").read_text() == "two\n"
    assert (project / "node_modules" / "b" / "index.js").read_text() == "new\n"
    assert (project / "src" / "main.o").read_text() == "two\n"
    assert (project / "src" / "new.o").read_text() == "new\n"
    assert not (project / "build" / "x").exists()


def test_F40_a_new_folder_that_holds_something_excluded_is_not_removed_with_it(cli: Cli, project: Path) -> None:
    """The agent's folder goes as far as it was saved; what was not captured stays, and is named."""
    write_accepted(project, 'exclude = ["*.keep"]\n')
    cli("checkpoint", check=False)
    (project / "new" / "deep").mkdir(parents=True)
    (project / "new" / "plain.txt").write_text("plain\n")
    (project / "new" / "deep" / "x.keep").write_text("never captured\n")
    answer = cli("rollback", "--json", check=False)
    assert answer.code in (0, 1, 6), answer
    assert not (project / "new" / "plain.txt").exists()
    assert (project / "new" / "deep" / "x.keep").read_text() == "never captured\n"
    assert {"new/deep/x.keep", "new/deep", "new"} & named(answer.json["report"])


ODD_RULES = """exclude = [
  "", "#comment", "   ", "!kept.log", "*.log", "!kept.log", "**/cache/**", "a[!b]c", "[", "\\\\",
  "trailing\\\\ ", "/", "//",
  "**", "!**", "foo/**/bar", "*/", "!*/", "\\u202e", "no-such", "é*", "?.tmp",
]
"""


def test_F41_odd_rules_stop_nobody(cli: Cli, project: Path) -> None:
    """Empty, negated, unclosed and contradictory patterns: commands work, and what they hit is named."""
    write_accepted(project, ODD_RULES)
    for name in ("x.log", "kept.log", "a.tmp"):
        (project / name).write_text("one\n")
    made = cli("checkpoint", "--json", check=False)
    assert made.code in (0, 1), made
    gaps = paths(made.json["checkpoint"]["gaps"])
    for name in ("x.log", "kept.log", "a.tmp", "README.md"):
        (project / name).write_text("two\n")
    answer = cli("rollback", "--json", check=False)
    assert answer.code in (0, 1, 3, 6), answer
    for name in ("x.log", "kept.log", "a.tmp", "README.md"):
        content = (project / name).read_text()
        assert content == "two\n" if name in gaps else content != "two\n", (name, gaps)


@pytest.mark.parametrize("size", ["long", "huge", "binary", "fifo", "link"])
def test_F41_a_rule_file_that_is_no_rule_file(cli: Cli, project: Path, size: str, tmp_path: Path) -> None:
    """Thousands of rules are obeyed; megabytes, garbage, a FIFO or a link are told, and do not stop a rollback."""
    path = project / "reprieve.toml"
    checkpoint(cli)
    if size == "long":
        rules = "".join(f'  "no-such-{i}/**/x*",\n' for i in range(3_000))
        write_accepted(project, f'exclude = [\n{rules} "z.log"]\n')
    elif size == "huge":
        path.write_text("exclude = [\n" + "".join(f'  "no-such-{i}",\n' for i in range(150_000)) + "]\n")
    elif size == "binary":
        path.write_bytes(os.urandom(5_000))
    elif size == "fifo":
        os.mkfifo(path)
    else:
        (tmp_path / "rules").write_text('exclude = ["*"]\n')
        path.symlink_to(tmp_path / "rules")
    (project / "README.md").write_text("wrecked\n")
    (project / "z.log").write_text("z\n")
    answer = cli("rollback", "--json", check=False, timeout=30)
    assert answer.code in (0, 1), answer
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"
    if size != "long":
        assert not os.path.lexists(path)


def test_F41_what_is_excluded_now_but_was_captured_is_not_deleted(cli: Cli, project: Path) -> None:
    """Rules that change between two checkpoints make nothing disappear, in either direction."""
    (project / "a.log").write_text("captured\n")
    first = checkpoint(cli)
    write_accepted(project, 'exclude = ["*.log"]\n')
    second = cli("checkpoint", "--json", check=False).json["checkpoint"]["id"]
    assert (project / "a.log").read_text() == "captured\n"
    for ref in (first, second, first, second):
        answer = cli("rollback", ref, "--json", check=False)
        assert answer.code in (0, 1), answer
        assert (project / "a.log").read_text() == "captured\n"
    cli("rollback", first, check=False)
    (project / "reprieve.toml").unlink(missing_ok=True)
    third = checkpoint(cli)
    rollback(cli, third)
    assert (project / "a.log").read_text() == "captured\n"
    cli("rollback", second, check=False)
    assert (project / "a.log").read_text() == "captured\n"


# --- time -------------------------------------------------------------------------------------------------------

HOUR, YEAR = 3_600, 31_557_600


@pytest.mark.parametrize("jump", [-HOUR, -30 * YEAR, 10 * YEAR, -HOUR * 2, 1], ids=["1h", "30y", "10y", "dst", "leap"])
def test_F44_order_is_by_sequence_and_not_by_the_clock(cli: Cli, project: Path, tmp_path: Path, jump: int) -> None:
    """A clock that jumps between checkpoints changes neither their order nor what `latest`, ~N and rollback mean."""
    shifted = {"LD_PRELOAD": str(build(tmp_path)), "SHIM_CLOCK": str(jump)}
    ids = []
    for i, env in enumerate(({}, shifted, {})):
        (project / "README.md").write_text(f"{i}\n")
        ids.append(checkpoint(cli, env=env))
    entries = cli("log", "--json").json["entries"]
    assert [entry["id"] for entry in entries] == ids[::-1]
    times = {entry["id"]: entry["created_at"] for entry in entries}
    assert abs(jump) < HOUR or times[ids[1]][:13] != times[ids[0]][:13]
    (project / "README.md").write_text("wrecked\n")
    rollback(cli)
    assert (project / "README.md").read_text() == "2\n"
    rollback(cli, ids[1])
    assert (project / "README.md").read_text() == "1\n"
    redo(cli)
    assert (project / "README.md").read_text() == "2\n"
    cli("verify")


@pytest.mark.parametrize("jump", [10 * YEAR, -30 * YEAR])
def test_F44_nothing_expires_by_a_jumped_clock(cli: Cli, project: Path, tmp_path: Path, jump: int) -> None:
    """prune by age, run with a clock that is years off, does not take the newest checkpoints with it."""
    shifted = {"LD_PRELOAD": str(build(tmp_path)), "SHIM_CLOCK": str(jump)}
    ids = []
    for i in range(4):
        (project / "README.md").write_text(f"{i}\n")
        ids.append(checkpoint(cli))
    cli("prune", "--yes", env=shifted)
    cli("gc", env=shifted)
    for i, id in enumerate(ids):
        rollback(cli, id)
        assert (project / "README.md").read_text() == f"{i}\n"


def test_F44_files_from_the_future_are_seen_when_they_change(cli: Cli, project: Path) -> None:
    """An mtime years ahead is restored, and a rewrite of such a file is still found."""
    path = project / "README.md"
    ahead = 4_000_000_000_000_000_000
    os.utime(path, ns=(ahead, ahead))
    before = fingerprint(project)
    checkpoint(cli)
    path.write_text("wrecked\n")
    os.utime(path, ns=(ahead, ahead))
    assert changes(cli) == {"README.md": "modified"}
    rollback(cli)
    assert_tree(project, before)


# --- names ------------------------------------------------------------------------------------------------------

OURS = (
    ".reprieve",
    ".reprieve-0000",
    ".reprieve-tmp-1234",
    ".reprieve-stage",
    "store.db",
    "store.db-journal",
    "format",
    "packs",
    "locks",
    "tmp",
    "index",
    "n0",
    "t0",
    "1.pack",
)


def test_F45_files_named_like_ours_are_the_users(cli: Cli, project: Path) -> None:
    """Files and folders with the names of our store, locks and staging are never cleaned away."""
    for i, name in enumerate(OURS):
        if i % 2:
            (project / name).write_text(name)
        else:
            (project / name).mkdir()
            (project / name / "n0").write_text(name)
            (project / name / "intent").write_text("{}")
    before = fingerprint(project)
    checkpoint(cli)
    (project / "README.md").write_text("wrecked\n")
    rollback(cli)
    assert_tree(project, before)
    for i, name in enumerate(OURS):
        (project / name).unlink() if i % 2 else shutil.rmtree(project / name)
    gone = fingerprint(project)
    rollback(cli)
    assert_tree(project, before)
    redo(cli)
    assert_tree(project, gone)


def test_F48_a_name_that_is_an_option_of_ours(cli: Cli, project: Path) -> None:
    """After `--` everything is a path; without it an unknown option is an error and not a file."""
    for name in ("--all", "-q", "--json", "--to", "-C", "--"):
        (project / name).write_text("good\n")
    checkpoint(cli)
    for name in ("--all", "-q", "--json", "--to", "-C", "--", "README.md"):
        (project / name).write_text("wrecked\n")
    cli("revert", "--", "--all")
    assert (project / "--all").read_text() == "good\n"
    assert (project / "-q").read_text() == "wrecked\n"
    answer = cli("revert", "--no-such-option", check=False)
    assert answer.code == 2
    report = cli("revert", "--json", "--", "-q", "--json", "--to", "-C", "--").json["report"]
    assert paths(report["restored"]) == {"-q", "--json", "--to", "-C", "--"}
    assert (project / "README.md").read_text() == "wrecked\n"
    shown = cli("diff", "--", "README.md", check=False).out
    assert "wrecked" in shown


def test_F48_a_label_that_looks_like_an_option(cli: Cli, project: Path) -> None:
    """Labels, too, may begin with a dash after `--`."""
    made = cli("checkpoint", "--json", "--", "--force").json["checkpoint"]
    assert made["label"] == "--force"
