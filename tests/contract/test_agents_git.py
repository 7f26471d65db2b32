"""Git as state: whatever an agent does to a repository comes back, and what a person did to it stays.

A7, B7, C4, WB-46, CT-15, P-01 (files and branches), F38 and F39 with an agent at work.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.errors import Conflict
from support.acts import assert_tree
from support.desk import TEXT, Desk
from support.tree import fingerprint

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is what it is about")

REPOSITORY = """
git init -q -b main . && git config user.name P && git config user.email p@example.org
git add -A && git commit -q -m one
echo two > two.txt && git add two.txt && git commit -q -m two
git branch feature HEAD~1 && git tag v1 && git tag -a -m annotated v2
git checkout -q feature && echo f > feature.txt && git add feature.txt && git commit -q -m feature
git checkout -q main
echo stashed >> README.md && git stash -q
echo three > three.txt && git add three.txt && git commit -q -m three
echo staged > staged.txt && git add staged.txt && echo unstaged >> README.md && echo untracked > untracked.txt
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with all that people lose: branches, tags, a stash, staged, unstaged and untracked work."""
    root = tmp_path_factory.mktemp("template") / "repository"
    root.mkdir()
    (root / "README.md").write_text(TEXT)
    (root / "src").mkdir()
    (root / "src" / "main.py").write_text(TEXT)
    (root / ".gitignore").write_text(".env\n")
    (root / ".env").write_text("TOKEN=secret\n")
    Desk.sh(_Place(root), REPOSITORY)  # type: ignore[arg-type]
    return root


class _Place:
    def __init__(self, root: Path) -> None:
        self.root = root


@pytest.fixture
def desk(template: Path, tmp_path: Path, home: Path) -> Iterator[Desk]:
    root = tmp_path / "repository"
    shutil.copytree(template, root, symlinks=True)
    with Desk(root) as desk:
        desk.sh("git status")  # the copy has other inodes: let git refresh its index before anything is recorded
        yield desk


def seen_by_git(desk: Desk, at: str = ".") -> list[str]:
    """What git says about a repository, without letting it write anything."""
    look = "git --no-optional-locks"
    commands = (
        "status --porcelain=v2 --branch",
        "for-each-ref",
        "stash list",
        "ls-files -s",
        "reflog",
        "worktree list",
    )
    return [desk.sh(f"cd {at} && {look} {command}") for command in commands]


def is_whole(desk: Desk, at: str = ".") -> None:
    said = desk.sh(f"cd {at} && git --no-optional-locks fsck --strict 2>&1")
    assert "missing" not in said and "error" not in said and "broken" not in said, said


WRECKS = {
    "commits": "echo x > x && git add -A && git commit -q -m agent",
    "amends": "git commit -q --amend -m rewritten",
    "reset hard": "git reset -q --hard HEAD~2",
    "rebases": "git stash -q; git rebase -q feature",
    "deletes branches and tags": "git branch -q -D feature; git tag -d v1 v2",
    "drops the stash": "git stash drop -q",
    "clears reflogs and collects": "git reflog expire --expire=now --all; git stash clear; git branch -D feature; "
    "git reset -q --hard HEAD~2; git reflog expire --expire=now --all; git gc -q --prune=now",
    "deletes .git": "rm -rf .git",
    "begins anew": "rm -rf .git && git init -q && git add -A && git commit -q -m 'Initial commit'",
    "switches branches": "git stash -q && git checkout -q feature && git stash pop -q",
    "unstages": "git reset -q && git clean -qfdx",
    "discards": "git checkout -q . && git clean -qfdx",
    "merges with a conflict": "git stash -q; git checkout -q feature; sed -i 3s/.*/f/ README.md; git commit -qam f; "
    "git checkout -q main; sed -i 3s/.*/m/ README.md; git commit -qam m; git merge -q feature || true",
    "stops in a rebase": "git stash -q; GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~2 || true",
    "packs refs": "git pack-refs --all && git repack -adq",
    "changes config and hooks": "git config core.hooksPath /tmp; echo exit 1 > .git/hooks/pre-commit",
    "adds a worktree": "git worktree add -q side feature && cd side && echo y > y && git add y && git commit -q -m y",
    "detaches HEAD": "git checkout -q --detach HEAD~1 || git checkout -qf --detach HEAD~1",
    "leaves a lock": "touch .git/index.lock",
}


@pytest.mark.parametrize("wreck", WRECKS.values(), ids=WRECKS)
def test_A7_WB46_whatever_an_agent_does_to_a_repository_comes_back(desk: Desk, wreck: str) -> None:
    """HEAD, refs, index, stash, reflogs, objects, config and the files: byte for byte, and git finds nothing wrong."""
    before, said = fingerprint(desk.root), seen_by_git(desk)
    start = desk.checkpoint()
    assert_tree(desk.root, before)
    desk.agent(wreck)
    assert fingerprint(desk.root) != before
    _, report = desk.rollback(start)
    assert not report.kept and not report.not_undone and not report.conflicts
    assert_tree(desk.root, before)
    assert seen_by_git(desk) == said
    is_whole(desk)


@pytest.mark.parametrize("wreck", ["git merge --abort", "git checkout -q --theirs README.md; git commit -qam agent"])
def test_A7_a_merge_that_a_person_is_in_the_middle_of_comes_back(desk: Desk, wreck: str) -> None:
    """Ended or aborted by the agent: MERGE_HEAD, the unmerged entries of the index and the markers are there again."""
    desk.sh(WRECKS["merges with a conflict"])
    before, said = fingerprint(desk.root), seen_by_git(desk)
    assert (desk.root / ".git" / "MERGE_HEAD").exists() and "u UU" in said[0]
    start = desk.checkpoint()
    desk.agent(wreck)
    assert not (desk.root / ".git" / "MERGE_HEAD").exists()
    desk.rollback(start)
    assert_tree(desk.root, before)
    assert seen_by_git(desk) == said


@pytest.mark.parametrize("wreck", ["git rebase --abort", "git rebase --continue"])
def test_A7_a_rebase_that_a_person_is_in_the_middle_of_comes_back(desk: Desk, wreck: str) -> None:
    desk.sh(WRECKS["stops in a rebase"])
    before, said = fingerprint(desk.root), seen_by_git(desk)
    assert (desk.root / ".git" / "rebase-merge").exists()
    start = desk.checkpoint()
    desk.agent(wreck)
    assert not (desk.root / ".git" / "rebase-merge").exists()
    desk.rollback(start)
    assert_tree(desk.root, before)
    assert seen_by_git(desk) == said


def test_CT15_after_the_rollback_head_and_tree_agree(desk: Desk) -> None:
    """An agent that commits what it does: afterwards nobody has to reset anything by hand."""
    said = seen_by_git(desk)
    start = desk.checkpoint()
    for n in range(3):
        desk.agent(f"echo {n} >> src/main.py; git commit -q -am 'step {n}'", step=f"call:{n}")
    desk.rollback(start)
    assert seen_by_git(desk) == said
    desk.ws.redo()
    assert desk.sh("git log --format=%s -3") == "step 2\nstep 1\nstep 0\n"
    is_whole(desk)


def test_P01_files_and_branches_in_one_rollback(desk: Desk) -> None:
    """Two files edited and a branch made. Tools with effects of their own are another domain's."""
    before, said = fingerprint(desk.root), seen_by_git(desk)
    start = desk.checkpoint()
    desk.agent("echo a >> README.md; echo b >> src/main.py; git branch x")
    desk.rollback(start)
    assert_tree(desk.root, before)
    assert seen_by_git(desk) == said and "x" not in desk.sh("git branch --format='%(refname:short)'").split()


# --- a person's own work with git stays -------------------------------------------------------------------------


def test_B7_a_persons_commit_on_top_of_the_agents_stays(desk: Desk) -> None:
    """History is left alone and that is said; the agent's part goes from the files."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent")
    desk.put("src/main.py", 20, "mine")
    desk.sh("git commit -q -am mine")
    head = desk.sh("git rev-parse HEAD")
    _, report = desk.rollback(start)
    assert desk.sh("git rev-parse HEAD") == head
    assert [gap.path for gap in report.not_undone] == [b".git"] and "refs/heads/main" in report.not_undone[0].reason
    assert (desk.line("src/main.py", 3), desk.line("src/main.py", 20)) == ("line 3", "mine")
    assert "src/main.py" in desk.sh("git --no-optional-locks status --porcelain")
    is_whole(desk)


@pytest.mark.parametrize("choice", ["abort", "keep", "theirs", "merge", "both"])
def test_B7_history_that_both_moved_stops_no_rollback_of_files(desk: Desk, choice: str) -> None:
    """Whatever is chosen for conflicts: the stash stays, the report names it, the files come back."""
    start = desk.checkpoint()
    desk.agent("git stash drop -q; echo agent > agent.txt")
    desk.sh("echo mine >> two.txt; git stash -q -m mine")
    said = seen_by_git(desk)[1:]
    _, report = desk.rollback(start, on_conflict=choice)
    assert ["refs/stash" in gap.reason for gap in report.not_undone] == [True] and report.is_partial
    assert seen_by_git(desk)[1:] == said and not (desk.root / "agent.txt").exists()


def test_B7_a_persons_commit_before_the_agents_stays_and_the_agents_goes(desk: Desk) -> None:
    """First the person, then the agent: the repository is as the person left it, exactly."""
    start = desk.checkpoint()
    desk.put("src/main.py", 20, "mine")
    desk.sh("git commit -q -am mine")
    said = seen_by_git(desk)
    repository = fingerprint(desk.root / ".git")
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent")
    _, report = desk.rollback(start)
    assert seen_by_git(desk) == said
    assert_tree(desk.root / ".git", repository, ignore=["dir_mtime_ns"])
    assert not report.not_undone
    assert (desk.line("src/main.py", 3), desk.line("src/main.py", 20)) == ("line 3", "mine")
    is_whole(desk)


def test_B7_a_persons_commits_on_another_branch_stay(desk: Desk) -> None:
    """They stand on the agent's commit: their branch and every object behind it stay, the agent's branch goes back."""
    start = desk.checkpoint()
    main = desk.sh("git rev-parse main")
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent; echo x > x; git add x; git commit -q -m more")
    desk.sh("git checkout -q -b mine && echo m > m.txt && git add m.txt && git commit -q -m mine")
    tip = desk.sh("git rev-parse mine")
    desk.rollback(start)
    assert desk.sh("git rev-parse mine") == tip and desk.sh("git symbolic-ref HEAD") == "refs/heads/mine\n"
    assert desk.sh("git rev-parse main") == main
    assert desk.sh("git log --format=%s mine -3") == "mine\nmore\nagent\n"
    assert (desk.root / "m.txt").exists() and desk.line("src/main.py", 3) == "line 3"
    is_whole(desk)


def test_B7_a_git_status_since_is_no_change_of_a_persons(desk: Desk) -> None:
    """It writes the index anew; the agent's commits go back all the same."""
    said = seen_by_git(desk)
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent")
    os.utime(desk.root / "two.txt")
    before = (desk.root / ".git" / "index").read_bytes()
    desk.sh("git status")
    assert (desk.root / ".git" / "index").read_bytes() != before, "it did not refresh"
    _, report = desk.rollback(start)
    assert seen_by_git(desk) == said and not report.not_undone
    is_whole(desk)


def test_B7_a_person_who_only_stages_keeps_the_stage(desk: Desk) -> None:
    """The agent made a branch, the person staged a file: the branch goes, the index stays."""
    start = desk.checkpoint()
    desk.agent("git branch agents")
    (desk.root / "mine.txt").write_text("mine\n")
    desk.sh("git add mine.txt")
    staged = desk.sh("git ls-files -s")
    _, report = desk.rollback(start)
    assert desk.sh("git ls-files -s") == staged and "agents" not in desk.sh("git branch")
    assert not report.not_undone
    is_whole(desk)


def test_B7_pushed_since_is_said_and_history_stays_unless_asked(desk: Desk, tmp_path: Path) -> None:
    remote = f"{tmp_path}/remote.git"
    desk.sh(f"git init -q --bare {remote} && git remote add origin {remote} && git push -q origin main")
    said = seen_by_git(desk)
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent; git push -q origin main")
    head = desk.sh("git rev-parse HEAD")
    for how in ({}, {"everything": True}):
        plan, _ = desk.ws.rollback(start, dry_run=True, **how)  # type: ignore[arg-type]
        assert "pushed to origin/main" in plan.not_undone[0].reason
        assert not any(b".git" in action.path.split(b"/") for action in plan.actions)
    _, report = desk.rollback(start)
    assert desk.sh("git rev-parse HEAD") == head and report.not_undone
    assert desk.line("src/main.py", 3) == "line 3"
    is_whole(desk)
    desk.ws.redo()
    desk.rollback(start, take_pushed=True)
    assert seen_by_git(desk) == said
    assert desk.sh(f"git --git-dir={tmp_path}/remote.git rev-parse main") == head, "the remote is nobody's to move"
    is_whole(desk)


def test_B7_the_last_step_is_named_if_undo_has_to_pass_it_over(desk: Desk, tmp_path: Path) -> None:
    """All that it did was to commit and push, which stays: who wants the last step gone has to know."""
    remote = f"{tmp_path}/remote.git"
    desk.sh(f"git init -q --bare {remote} && git remote add origin {remote} && git push -q origin main")
    desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ src/main.py")
    desk.agent("git commit -q -am agent; git push -q origin main")
    _, report = desk.ws.undo()
    assert report is not None and desk.line("src/main.py", 3) == "line 3"
    assert any("passed over: commits were pushed" in gap.reason for gap in report.not_undone)
    plan, report = desk.ws.undo()
    assert not plan.actions and "commits were pushed" in plan.not_undone[0].reason, "nothing else is left"
    is_whole(desk)


def test_B7_a_rebase_that_is_under_way_stays_whole_if_both_moved_the_index(desk: Desk) -> None:
    desk.sh("git checkout -q -b side && sed -i 3s/.*/side/ src/main.py && git commit -q -am side")
    desk.sh("git checkout -q main && sed -i 3s/.*/main/ src/main.py && git commit -q -am main && git checkout -q side")
    start = desk.checkpoint()
    desk.agent("git rebase main || true")
    (desk.root / "mine.txt").write_text("mine\n")
    desk.sh("git add mine.txt")
    _, report = desk.rollback(start, on_conflict="keep")
    assert report.not_undone
    assert "rebase in progress" in desk.sh("git status")
    desk.sh("git rebase --abort")
    is_whole(desk)


def test_B7_a_persons_fetch_is_no_conflict_with_the_agents(desk: Desk, tmp_path: Path) -> None:
    """A remote's branches are moved by whoever fetches; they stay as they are, and the agent's commit goes."""
    remote = f"{tmp_path}/remote.git"
    desk.sh(f"git init -q --bare {remote} && git remote add origin {remote} && git push -q origin main")
    desk.sh(f"git clone -q {remote} {tmp_path}/other -b main")
    main = desk.sh("git rev-parse main")
    desk.agent(
        "git fetch -q; echo agent >> src/main.py; git commit -q -am agent; git update-ref -d refs/remotes/origin/main"
    )
    desk.sh(f"cd {tmp_path}/other && git commit -q --allow-empty -m theirs && git push -q origin main")
    desk.sh("git fetch -q")
    fetched = desk.sh("git rev-parse origin/main")
    _, report = desk.undo("call:1")
    assert not report.not_undone and desk.sh("git rev-parse main") == main != fetched
    assert desk.sh("git rev-parse origin/main") == fetched
    is_whole(desk)


def test_B7_undo_with_theirs_takes_a_branch_back_from_both_and_says_so(desk: Desk) -> None:
    """HEAD, branch and index agree afterwards; the person's commit is still in git's log, and redo brings it back."""
    said = seen_by_git(desk)
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent")
    desk.sh("echo mine > mine.txt; git add mine.txt; git commit -q -m mine")
    both, mine = seen_by_git(desk), desk.sh("git rev-parse HEAD")
    _, report = desk.undo("call:1", on_conflict="theirs")
    assert not report.not_undone and not report.conflicts
    assert {kept.reason for kept in report.kept if kept.path == b".git"} == {"the rest of git's history stays as it is"}
    was = [line for line in said[0].splitlines() if "branch.oid" in line]
    assert was[0] in desk.sh("git --no-optional-locks status --porcelain=v2 --branch")
    assert desk.sh("git ls-files -s") == said[3] and desk.sh("git symbolic-ref HEAD") == "refs/heads/main\n"
    assert mine.strip() in desk.sh("git reflog --no-abbrev"), "logs stay"
    is_whole(desk)
    desk.ws.redo()
    assert seen_by_git(desk) == both


@pytest.mark.parametrize("dropped", ["stash@{0}", "stash@{1}"])
def test_B7_undo_with_theirs_moves_the_stash_and_its_log_together(desk: Desk, dropped: str) -> None:
    """`git stash list` reads the log, `git stash pop` the ref: they must be of one state."""
    desk.sh("echo older >> README.md; git stash -q -m older")
    said = seen_by_git(desk)
    desk.agent(f"git stash drop -q '{dropped}'")
    desk.sh("echo mine >> two.txt; git stash -q -m mine")
    both = seen_by_git(desk)
    with pytest.raises(Conflict):
        desk.undo("call:1")
    _, report = desk.undo("call:1", on_conflict="theirs")
    assert not report.not_undone
    assert desk.sh("git stash list") == said[2]
    assert desk.sh("git rev-parse refs/stash") == desk.sh("git rev-parse 'stash@{0}'")
    is_whole(desk)
    desk.ws.redo()
    assert seen_by_git(desk) == both


def test_B7_a_stash_comes_back_with_its_log_where_a_branch_stays(desk: Desk) -> None:
    """The branch was moved by both and stays, with the logs; the stash was the agent's alone and is whole again."""
    start = desk.checkpoint()
    stashes = desk.sh("git stash list")
    desk.agent("git stash drop -q; echo agent >> src/main.py; git commit -q -am agent")
    desk.sh("echo mine > mine.txt; git add mine.txt; git commit -q -m mine")
    _, report = desk.rollback(start)
    assert "refs/heads/main" in report.not_undone[0].reason
    assert desk.sh("git stash list") == stashes
    assert desk.sh("git rev-parse refs/stash") == desk.sh("git rev-parse 'stash@{0}'")


APART = {
    "another branch is checked out": "git checkout -q -b mine; echo m > m.txt; git add m.txt; git commit -q -m mine",
    "a merge is under way": "git commit -q -am mine; git merge -q --no-commit --no-ff feature",
    "refs are packed": "git commit -q -am mine; git pack-refs --all",
}


@pytest.mark.parametrize("act", APART.values(), ids=APART)
def test_B7_undo_with_theirs_is_refused_where_it_would_take_what_only_a_person_moved(desk: Desk, act: str) -> None:
    """The person's HEAD, merge or refs would be torn apart: nothing is touched."""
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent")
    desk.put("src/main.py", 20, "mine")
    desk.sh(act)
    before = fingerprint(desk.root)
    with pytest.raises(Conflict) as refused:
        desk.undo("call:1", on_conflict="theirs")
    assert all(path.startswith(".git/") for path in refused.value.data["reasons"])
    assert_tree(desk.root, before)


# --- ordinary file rollbacks leave git alone --------------------------------------------------------------------


@pytest.mark.parametrize("how", ["only", "revert", "revert .", "glob", "only ."])
def test_A7_an_ordinary_file_rollback_never_moves_git(desk: Desk, how: str) -> None:
    """HEAD, index, branches and stash stay to the byte, while the files come back."""
    start = desk.checkpoint()
    desk.agent("sed -i 3s/.*/agent/ src/main.py; git commit -q -am agent; git branch main.py; git stash drop -q")
    git = fingerprint(desk.root / ".git")
    if how.startswith("only"):
        desk.rollback(start, only=[b"src" if how == "only" else b""])
    else:
        path = {"revert": b"src/main.py", "revert .": b"", "glob": b"*main.py"}[how]
        desk.ws.revert([path], start)
    assert (desk.root / "src" / "main.py").read_text() == TEXT
    assert_tree(desk.root / ".git", git)


def test_A7_a_repository_that_is_gone_comes_back_with_its_folder(desk: Desk) -> None:
    """A folder that was deleted with its repository is brought back whole by a revert."""
    desk.sh("git clone -q . nested")
    before = fingerprint(desk.root / "nested")
    start = desk.checkpoint()
    desk.agent("rm -rf nested")
    desk.ws.revert([b"nested"], start)
    assert_tree(desk.root / "nested", before)
    is_whole(desk, "nested")


def test_C4_nothing_of_ours_is_ever_written_into_a_repository(desk: Desk) -> None:
    """Not by a checkpoint, a look, a plan, or a rollback that has no business there."""
    before = fingerprint(desk.root)
    inodes = {path: path.lstat().st_ino for path in (desk.root / ".git").rglob("*")}
    start = desk.checkpoint()
    desk.ws.status(start)
    with desk.window():
        pass
    desk.ws.rollback(start, dry_run=True)
    assert_tree(desk.root, before)
    desk.agent("echo agent >> src/main.py")
    desk.rollback(start)
    assert_tree(desk.root, before)
    assert {path: path.lstat().st_ino for path in (desk.root / ".git").rglob("*")} == inodes


# --- worktrees, submodules, several repositories -----------------------------------------------------------------


def test_F38_worktrees_submodules_and_nested_repositories_come_back(desk: Desk, tmp_path: Path) -> None:
    """The agent wrecks each of them; all are as before, and git finds nothing wrong in any."""
    desk.sh(f"git clone -q . {tmp_path}/library")
    desk.sh(
        "git worktree add -q side feature && git clone -q . nested && git init -q empty && "
        f"git -c protocol.file.allow=always submodule --quiet add {tmp_path}/library sub && git commit -q -m sub"
    )
    before = fingerprint(desk.root)
    start = desk.checkpoint()
    desk.agent(
        "for d in side nested sub; do "
        "(cd $d && echo x >> README.md && git commit -q -am agent && git gc -q --prune=now); done; "
        "rm -rf nested/.git/refs empty; git worktree remove -f side; git submodule --quiet deinit -f sub"
    )
    desk.rollback(start)
    assert_tree(desk.root, before)
    for at in (".", "side", "nested", "sub", "empty"):
        is_whole(desk, at)


def test_F38_a_persons_commit_in_one_repository_and_the_agents_in_another(desk: Desk) -> None:
    """Each repository is judged by itself."""
    desk.sh("git clone -q . nested")
    start = desk.checkpoint()
    outer = seen_by_git(desk)
    desk.agent("echo agent >> src/main.py; git commit -q -am agent")
    desk.sh("cd nested && echo mine >> README.md && git commit -q -am mine")
    inner = seen_by_git(desk, "nested")
    desk.rollback(start)
    assert seen_by_git(desk) == outer
    assert seen_by_git(desk, "nested") == inner
    is_whole(desk)
    is_whole(desk, "nested")


@pytest.fixture
def worktree(template: Path, tmp_path: Path, home: Path) -> Iterator[Desk]:
    """A workspace that is a linked worktree of a repository outside of it."""
    shutil.copytree(template, tmp_path / "main", symlinks=True)
    Desk.sh(_Place(tmp_path / "main"), "git worktree add -q ../side feature")  # type: ignore[arg-type]
    with Desk(tmp_path / "side") as desk:
        yield desk


MOVES_IN_A_WORKTREE = {
    "commits": "echo x >> README.md; git commit -q -am agent",
    "stages": "echo x > x; git add x",
    "switches": "git checkout -q -b other",
    "stashes": "echo x >> README.md; git stash -q",
    "resets": "git reset -q --hard HEAD~1",
}


@pytest.mark.parametrize("act", MOVES_IN_A_WORKTREE.values(), ids=MOVES_IN_A_WORKTREE)
@pytest.mark.parametrize("move", ["undo", "rollback"])
def test_F38_what_an_agent_moves_in_a_repository_outside_is_named(worktree: Desk, act: str, move: str) -> None:
    """HEAD, branch, index and stash of a linked worktree are elsewhere: a gap, and not undone."""
    start = worktree.checkpoint()
    gaps = {gap.path: gap.reason for gap in worktree.ws.status().gaps}
    assert str(worktree.root.parent / "main" / ".git" / "worktrees" / "side") in gaps[b".git"]
    files = {path.name: path.read_bytes() for path in worktree.root.iterdir() if path.is_file()}
    worktree.agent(act)
    said = seen_by_git(worktree)[1:]
    _, report = worktree.undo("call:1") if move == "undo" else worktree.rollback(start)
    assert [gap.path for gap in report.not_undone] == [b".git"] and report.is_partial
    assert "'call:1'" in report.not_undone[0].reason
    assert {path.name: path.read_bytes() for path in worktree.root.iterdir() if path.is_file()} == files
    assert seen_by_git(worktree)[1:] == said


def test_F38_nothing_is_named_of_a_repository_outside_that_the_step_left_alone(worktree: Desk) -> None:
    """A person's commit since is no news, nor is an index that `git status` wrote anew, nor what was moved back."""
    worktree.agent("echo x > x; git branch y; git branch -D y; touch README.md; git status", step="call:1")
    worktree.agent("git checkout -q -b other", step="call:2")
    worktree.sh("git checkout -q feature; git branch -D other")
    _, report = worktree.undo("call:2")
    assert not report.not_undone
    worktree.sh("git commit -q --allow-empty -m mine")
    _, report = worktree.undo("call:1")
    assert not report.not_undone and not report.is_partial and not (worktree.root / "x").exists()


def test_F39_a_lock_that_the_agent_left_goes_and_a_persons_stays(desk: Desk) -> None:
    start = desk.checkpoint()
    desk.agent("touch .git/refs/heads/agent.lock; git branch agents")
    (desk.root / ".git" / "index.lock").write_text("")
    desk.rollback(start)
    assert not (desk.root / ".git" / "refs" / "heads" / "agent.lock").exists()
    assert (desk.root / ".git" / "index.lock").exists()
