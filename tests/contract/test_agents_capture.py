"""What agents do is captured whatever they do it with, and is known to be theirs (A1 to A6, A8, A10)."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Cli
from support.acts import assert_tree, command, wait_until
from support.desk import TEXT, Desk, Gate
from support.settings import write_accepted
from support.tree import fingerprint
from support.worlds import xattrs_work

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def desk(project: Path) -> Iterator[Desk]:
    (project / "text").write_text(TEXT)
    with Desk(project) as desk:
        yield desk


# --- A1 to A3: by whatever means, whatever git thinks of it, wherever ---------------------------------------------

MEANS = {
    "sed -i": "sed -i 3s/.*/agent/ text",
    "heredoc": "cat > text <<END\nall new\nEND",
    "python": f"{sys.executable} -c \"open('text','a').write('more')\"",
    "mv": "mv text moved && mv src lib",
    "rm -rf": "rm -rf src empty",
    "git checkout": "git checkout -q . ",
    "git clean": "git clean -qfdx",
    "an install": "rm -rf node_modules && mkdir -p node_modules/.bin && ln -s ../a/cli.js node_modules/.bin/a && "
    "mkdir node_modules/a && echo x > node_modules/a/cli.js && chmod +x node_modules/a/cli.js",
    "a build": "mkdir -p build && cp data.bin build/out && ln build/out build/hard && touch -d @1 build/old",
    "dd": "dd if=/dev/zero of=data.bin bs=1 count=10 conv=notrunc 2> /dev/null",
    "truncate": "truncate -s 3 data.bin",
    "chmod": "chmod -R a-w src && chmod 4755 tool.sh",
}


@needs_git
@pytest.mark.parametrize("means", MEANS.values(), ids=MEANS)
def test_A1_by_whatever_means_it_comes_back(desk: Desk, means: str) -> None:
    """Changed, created, deleted, renamed by the shell: the bytes, modes, times and links of before."""
    desk.sh("git init -q && git add text src README.md && git commit -q -m first && echo changed >> README.md")
    before = fingerprint(desk.root)
    start = desk.checkpoint()
    desk.agent(means)
    changed = fingerprint(desk.root)
    assert changed != before and set(desk.who(start).values()) == {"claude-code:s1"}
    desk.rollback(start)
    assert_tree(desk.root, before)
    desk.ws.redo()
    assert_tree(desk.root, changed)


@needs_git
def test_A2_ignored_and_untracked_files_come_back(desk: Desk) -> None:
    """What git never saw: a deleted .env, a database, a file that nobody added."""
    desk.sh("git init -q && echo '*.db' >> .gitignore && git add .gitignore && git commit -q -m first")
    (desk.root / "data.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    before = fingerprint(desk.root)
    start = desk.checkpoint()
    desk.agent("rm .env data.db text; git clean -qfdx")
    desk.rollback(start)
    assert_tree(desk.root, before)


PLACES = {
    "no repository": ("true", "."),
    "without commits": ("git init -q", "."),
    "nested without commits": ("git init -q && git init -q nested", "nested"),
    "nested with commits": (
        "git init -q && git init -q nested && cd nested && git commit -q --allow-empty -m n",
        "nested",
    ),
    "a subdirectory": ("git init -q", "src"),
    "worktree": ("git init -q && git commit -q --allow-empty -m one && git worktree add -q wt", "wt"),
    "bare repository": ("git init -q --bare bare.git", "bare.git"),
}


@needs_git
@pytest.mark.parametrize(("prepare", "at"), PLACES.values(), ids=PLACES)
def test_A3_it_works_whatever_git_makes_of_the_place(desk: Desk, prepare: str, at: str) -> None:
    desk.sh(prepare)
    before = fingerprint(desk.root)
    start = desk.checkpoint()
    desk.agent(f"cd {at} && echo agent > by-agent && rm -f util.py HEAD && mkdir -p x/y && cd {desk.root} && rm text")
    with Desk(desk.root / at) as inside:
        assert inside.root != desk.root or at == "."
        inside.rollback(start)
    assert_tree(desk.root, before)


def test_A3_from_a_symlinked_directory(cli: Cli, project: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(project / "src")
    cli("init")
    cli("checkpoint", cwd=tmp_path / "way")
    before = fingerprint(project)
    cli("run", "--", "sh", "-c", "rm main.py; echo x > ../x", cwd=tmp_path / "way")
    cli("rollback", cwd=tmp_path / "way")
    assert_tree(project, before)


def test_A4_what_lies_outside_is_not_claimed(cli: Cli, project: Path, tmp_path: Path) -> None:
    """A file outside the tree is neither changed nor said to be protected, also where a link inside leads to it.

    What is outside is protected by `track`.
    """
    outside = tmp_path / "zshrc"
    outside.write_text("mine\n")
    (project / "rc").symlink_to(outside)
    cli("checkpoint")
    cli("run", "--", "sh", "-c", "echo agent >> rc; echo x > made")
    answer = cli("rollback", "--json").json
    assert outside.read_text() == "mine\nagent\n"
    assert not (project / "made").exists()
    assert not any("zshrc" in path or path == "rc" for path in answer["report"]["restored"])


def test_A4_a_tracked_file_outside_is_taken_back_like_one_inside(cli: Cli, project: Path, tmp_path: Path) -> None:
    """~/.zshrc and a sibling repository: the agent's lines go, the person's stay, what nobody tracks is left alone."""
    rc, sibling = tmp_path / "zshrc", tmp_path / "sibling"
    rc.write_text(TEXT)
    sibling.mkdir()
    (sibling / "code").write_text("code\n")
    cli("track", str(rc), str(sibling))
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    cli("run", "--label", "agent", "--", "sh", "-c", f"sed -i 3s/.*/agent/ {rc}; rm {sibling}/code; echo x > made")
    rc.write_text(rc.read_text().replace("line 20\n", "mine\n"))
    cli("rollback", start)
    assert rc.read_text() == TEXT.replace("line 20\n", "mine\n")
    assert (sibling / "code").read_text() == "code\n" and not (project / "made").exists()


def test_A5_odd_bytes_and_odd_names(desk: Desk) -> None:
    """Binary, empty, sparse, CRLF, no UTF-8, a case-only rename, a long path: identical, and the agent's part goes."""
    root = os.fsencode(desk.root)
    names = [b"\xff\xfe.bin", b"empty file", b"crlf.txt", b"Case", b"/".join([b"d" * 60] * 6) + b"/deep"]
    datas = [b"\0\xff" * 99, b"", b"one\r\ntwo\r\n", b"case\n", b"deep\n"]
    for name, data in zip(names, datas, strict=True):
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        with open(os.path.join(root, name), "wb") as file:
            file.write(data)
    with open(desk.root / "sparse", "wb") as file:
        file.truncate(3 << 30)
    (desk.root / ".gitattributes").write_text("* text=auto eol=crlf\n*.bin filter=lfs\n")
    before = fingerprint(desk.root, skip=[b"sparse"])
    start = desk.checkpoint()
    with desk.window():
        for name in names[:3]:
            with open(os.path.join(root, name), "ab") as file:
                file.write(b"\r\n\0agent")
        os.rename(os.path.join(root, b"Case"), os.path.join(root, b"case"))
        shutil.rmtree(os.path.join(root, b"d" * 60))
        os.truncate(desk.root / "sparse", 10)
    desk.rollback(start)
    assert_tree(desk.root, before, skip=[b"sparse"])
    st = (desk.root / "sparse").stat()
    assert st.st_size == 3 << 30 and st.st_blocks * 512 < 1 << 20


def test_A6_what_is_not_content_comes_back_and_untouched_files_stay_untouched(desk: Desk) -> None:
    """Empty folders, modes, links, hard links, attributes; the inode and time of what nobody touched."""
    root = desk.root
    (root / "shared").mkdir()
    (root / "shared").chmod(0o2770)
    os.link(root / "text", root / "hard")
    if xattrs_work(str(root)):
        os.setxattr(root / "README.md", "user.colour", b"red")
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "x").write_text("not ours\n")
    (root / "out").symlink_to(outside)
    before = fingerprint(root)
    untouched = {path: (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in (root / "src").iterdir()}
    start = desk.checkpoint()
    desk.agent(
        "rmdir empty; chmod 644 .env; chmod 755 shared; rm hard; cp text hard; rm out; mkdir out; echo y > out/x; "
        "rm README.md; echo new > README.md; rm link; ln -s nowhere link"
    )
    desk.rollback(start)
    assert_tree(root, before)
    assert (outside / "x").read_text() == "not ours\n"
    assert stat.S_IMODE((root / ".env").stat().st_mode) == 0o600
    assert {path: (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in untouched} == untouched


def test_A6_a_hard_linked_file_that_both_changed_stays_linked(desk: Desk) -> None:
    """One file with two names: the agent's lines go from it, the person's stay, and it is still one file."""
    os.link(desk.root / "text", desk.root / "hard")
    start = desk.checkpoint()
    with desk.window(), open(desk.root / "text", "r+") as file:
        file.write(TEXT.replace("line 3\n", "agent\n"))
    with open(desk.root / "hard", "r+") as file:
        file.write(TEXT.replace("line 3\n", "agent\n").replace("line 20\n", "mine\n"))
        file.truncate()
    desk.rollback(start)
    wanted = TEXT.replace("line 20\n", "mine\n")
    assert (desk.root / "text").read_text() == (desk.root / "hard").read_text() == wanted
    assert (desk.root / "text").stat().st_ino == (desk.root / "hard").stat().st_ino


def write_in_place(path: Path, old: str, new: str) -> None:
    """Edit a file under all its names."""
    text = path.read_text().replace(old, new)
    with open(path, "r+") as file:
        file.write(text)
        file.truncate()


@pytest.mark.parametrize("home", ["a", "z"])
def test_A6_names_of_one_file_with_different_stories_come_back_as_different_files(desk: Desk, home: str) -> None:
    """The agent removed a name before a person wrote on under the others: what that name had is not what they get."""
    text, hard, gone = desk.root / "text", desk.root / "hard", desk.root / home
    os.link(text, hard)
    os.link(text, gone)
    start = desk.checkpoint()
    write_in_place(text, "line 3\n", "mine\n")
    with desk.window():
        gone.unlink()
        write_in_place(text, "line 12\n", "agent\n")
    write_in_place(text, "line 20\n", "mine too\n")
    before = fingerprint(desk.root)
    desk.rollback(start)
    first = TEXT.replace("line 3\n", "mine\n")
    assert gone.read_text() == first
    assert text.read_text() == hard.read_text() == first.replace("line 20\n", "mine too\n")
    assert text.samefile(hard) and not text.samefile(gone)
    after = fingerprint(desk.root)
    assert desk.ws.checkpoint().entry.changed == 0  # what was recorded is what is there
    desk.ws.redo()
    assert_tree(desk.root, before)
    desk.rollback(start)
    assert_tree(desk.root, after)


def test_A6_a_name_made_between_two_edits_keeps_what_it_had(desk: Desk) -> None:
    """The agent's first edit goes from the old name and was never one of the new name's; both are reported truly."""
    text, hard = desk.root / "text", desk.root / "hard"
    start = desk.checkpoint()
    with desk.window():
        write_in_place(text, "line 3\n", "agent\n")
    os.link(text, hard)
    with desk.window():
        write_in_place(text, "line 12\n", "agent again\n")
    write_in_place(text, "line 20\n", "mine\n")
    before = fingerprint(desk.root)
    desk.rollback(start)
    assert text.read_text() == TEXT.replace("line 20\n", "mine\n")
    assert hard.read_text() == text.read_text().replace("line 3\n", "agent\n")
    assert desk.ws.checkpoint().entry.changed == 0
    desk.ws.redo()
    assert_tree(desk.root, before)


@pytest.mark.parametrize("change", ["echo more >> text", "chmod 600 text"])
def test_A6_one_name_of_a_file_taken_back_alone_leaves_the_other_as_it_is(desk: Desk, change: str) -> None:
    """`--only` means a name: what else the file is called keeps what it has, and the way back makes them one again."""
    os.link(desk.root / "text", desk.root / "hard")
    start = desk.checkpoint()
    old = fingerprint(desk.root)
    desk.agent(change)
    before = fingerprint(desk.root)
    desk.rollback(start, only=[b"text"])
    after = fingerprint(desk.root)
    assert after[b"text"] == old[b"text"]._replace(group=b"")
    assert after[b"hard"] == before[b"hard"]._replace(group=b"")
    desk.ws.redo()
    assert_tree(desk.root, before)


# --- A8: never silent ---------------------------------------------------------------------------------------------


def test_A8_what_cannot_be_captured_is_told_at_once_and_never_claimed(cli: Cli, project: Path) -> None:
    """A file over the limit: named at the checkpoint, not restored from an older state, named as not undone."""
    (project / "big").write_text("old\n")
    write_accepted(project, "max_file_size = 4500\n")
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    ran = cli("run", "--label", "agent", "--", "sh", "-c", "head -c 5000 /dev/zero > big; echo x > made")
    assert "not protected: big" in ran.err
    made = cli("checkpoint", "--json").json["checkpoint"]
    assert {gap["path"] for gap in made["gaps"]} == {"big"}
    answer = cli("rollback", start, "--json", check=False).json
    assert {gap["path"] for gap in answer["report"]["not_undone"]} == {"big"}
    assert "big" not in answer["report"]["restored"]
    assert (project / "big").read_bytes() == bytes(5000) and not (project / "made").exists()


def test_A8_a_store_that_fails_stops_the_command_before_it_runs(cli: Cli, project: Path, home: Path) -> None:
    """What cannot be protected is not begun."""
    cli("checkpoint")
    for path in home.rglob("*"):
        if path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3"):
            path.write_bytes(b"not a database")
    before = fingerprint(project)
    failed = cli("run", "--", "sh", "-c", "echo x > made", check=False)
    assert failed.code in (10, 11, 12, 13), failed
    assert_tree(project, before)


# --- A10: at once, below, and afterwards ---------------------------------------------------------------------------


def test_A10_two_at_once_are_shared_and_alone_their_own(desk: Desk) -> None:
    """What was written while both were at work is said to be of both; before and after it is one's."""
    start = desk.checkpoint()
    _, first = desk.ws.open_window("claude-code:s1", "call:1")
    (desk.root / "a1").write_text("a")
    _, second = desk.ws.open_window("codex:s2", "call:2")
    (desk.root / "both").write_text("either")
    desk.ws.close_window(first)
    (desk.root / "b1").write_text("b")
    desk.ws.close_window(second)
    (desk.root / "mine").write_text("mine")
    assert desk.who(start) == {
        "a1": "claude-code:s1",
        "both": "claude-code:s1,codex:s2",
        "b1": "codex:s2",
        "mine": "person",
    }
    reasons = desk.refused(start, actor="claude-code:s1")
    assert list(reasons) == ["both"] and "claude-code:s1 and codex:s2" in reasons["both"]
    desk.rollback(start, actor="claude-code:s1", on_conflict="keep")
    assert sorted(desk.who(start)) == ["b1", "both", "mine"]
    desk.rollback(start)
    assert sorted(desk.who(start)) == ["mine"]


def test_A10_parallel_calls_of_one_agent_are_the_agents(desk: Desk) -> None:
    """Which of two calls wrote a file is not known: one alone cannot be undone, both are the session's."""
    start = desk.checkpoint()
    before = fingerprint(desk.root)
    _, first = desk.ws.open_window("claude-code:s1", "call:1")
    _, second = desk.ws.open_window("claude-code:s1", "call:2")
    (desk.root / "x").write_text("x")
    desk.ws.close_window(second)
    desk.ws.close_window(first)
    assert desk.who(start) == {"x": "claude-code:s1"}
    with pytest.raises(Exception, match="nothing was touched"):
        desk.undo("call:1")
    desk.rollback(start)
    assert_tree(desk.root, before)


def test_A10_sub_agents_count_to_their_session(desk: Desk) -> None:
    start = desk.checkpoint()
    desk.agent("echo s > sub", actor="claude-code:s1/explore", step="call:1")
    desk.agent("echo o > other", actor="claude-code:s11", step="call:2")
    assert desk.who(start) == {"sub": "claude-code:s1/explore", "other": "claude-code:s11"}
    desk.rollback(start, actor="claude-code:s1")
    assert not (desk.root / "sub").exists() and (desk.root / "other").exists()


@pytest.mark.parametrize("is_done", [False, True])
def test_A10_K11_a_background_process_is_not_a_person(cli: Cli, project: Path, tmp_path: Path, is_done: bool) -> None:
    """What it writes after its run ended is unknown and counts as the agent's, also when it has ended by then."""
    gate = Gate(tmp_path)
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    program = (
        f"(read x < {gate.path}; echo late > late.txt; read x < {gate.path}) > /dev/null 2>&1 & echo now > now.txt"
    )
    subprocess.run(command("run", "--label", "agent", "--", "sh", "-c", program), cwd=project, check=True, timeout=60)
    gate.open()
    wait_until(lambda: (project / "late.txt").exists() and bool((project / "late.txt").read_text()), what="late.txt")
    if is_done:
        gate.open()
    answer = cli("status", "--since", start, "--json").json["changes"]
    assert {c["path"]: c["actor"] for c in answer} == {"now.txt": "run:agent", "late.txt": "unknown"}
    cli("rollback", start)
    assert not (project / "late.txt").exists() and not (project / "now.txt").exists()
    if not is_done:
        gate.open()


def test_A10_a_persons_work_after_everyone_is_done_is_theirs_again(desk: Desk) -> None:
    start = desk.checkpoint()
    desk.agent("echo a > a")
    (desk.root / "mine").write_text("mine")
    desk.agent("echo b > b", step="call:2")
    (desk.root / "mine too").write_text("mine")
    desk.rollback(start)
    assert sorted(desk.who(start)) == ["mine", "mine too"]
