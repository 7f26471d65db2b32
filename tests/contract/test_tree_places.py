"""Whose a file is, and what is mounted in the tree. F28 to F32, F47."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from support import Cli, Result
from support.acts import assert_tree, checkpoint, named, paths, powerless, redo, rollback
from support.mounts import mounted, tool
from support.rootly import root_only
from support.settings import write_accepted
from support.tree import fingerprint

# --- whose it is ------------------------------------------------------------------------------------------------


def test_F28_a_read_only_directory_of_ones_own_comes_back(project: Path) -> None:
    """An ordinary user's own 0555 directory is loosened for the moment of the restore, and closed again."""
    person = powerless(project)
    (project / "src").chmod(0o555)
    before = fingerprint(project)
    checkpoint(person)
    (project / "src" / "main.py").chmod(0o600)
    (project / "src" / "main.py").write_text("wrecked in place\n")
    (project / "src" / "util.py").write_text("wrecked in place\n")
    rollback(person)
    assert_tree(project, before)
    assert stat.S_IMODE((project / "src").stat().st_mode) == 0o555


@root_only
def test_F28_a_directory_that_cannot_be_written_is_found_before_anything_is_touched(project: Path) -> None:
    """Somebody else's read-only directory: the rollback names it and leaves everything as it is."""
    person = powerless(project)
    theirs = project / "theirs"
    theirs.mkdir()
    (theirs / "f").write_text("good\n")
    os.chown(theirs, 4242, 4242)
    checkpoint(person)
    (theirs / "f").unlink()
    (project / "README.md").write_text("wrecked\n")
    (project / "added").write_text("added\n")
    broken = fingerprint(project)
    answer = person("rollback", "--json", check=False)
    assert answer.code in (4, 5), answer
    assert "theirs" in answer.out
    assert_tree(project, broken)
    answer = person("rollback", "--json", "--only", "README.md", check=False)
    assert answer.code == 0, answer
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"


@root_only
@pytest.mark.parametrize("flag", ["i", "a"])
def test_F29_one_immutable_file_among_thirty_stops_all_or_nothing(cli: Cli, project: Path, flag: str) -> None:
    """chattr +i and +a are found before anything is changed; once the flag is off, the same rollback works."""
    for i in range(30):
        (project / f"f{i}").write_text(f"good {i}\n")
    before = fingerprint(project)
    checkpoint(cli)
    for i in range(30):
        (project / f"f{i}").write_text(f"bad {i}\n")
    broken = fingerprint(project)
    done = subprocess.run([tool("chattr"), f"+{flag}", project / "f17"], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("the file system of the temporary directory has no such flag")
    try:
        answer = cli("rollback", "--json", check=False)
    finally:
        subprocess.run([tool("chattr"), f"-{flag}", project / "f17"], check=True)
    assert answer.code in (4, 5), answer
    assert "f17" in answer.out
    assert_tree(project, broken)
    rollback(cli)
    assert_tree(project, before)


@root_only
def test_F29_an_immutable_directory_is_found_as_well(cli: Cli, project: Path) -> None:
    """Nothing can be renamed into it, so nothing is begun."""
    checkpoint(cli)
    (project / "src" / "main.py").write_text("wrecked\n")
    (project / "README.md").write_text("wrecked\n")
    broken = fingerprint(project)
    done = subprocess.run([tool("chattr"), "+i", project / "src"], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("the file system of the temporary directory has no such flag")
    try:
        answer = cli("rollback", "--json", check=False)
    finally:
        subprocess.run([tool("chattr"), "-i", project / "src"], check=True)
    assert answer.code in (4, 5), answer
    assert "src" in answer.out
    assert_tree(project, broken)


@root_only
def test_F30_files_of_another_user(cli: Cli, project: Path) -> None:
    """Captured if readable; root restores the owner, an ordinary user is told what cannot be owned."""
    (project / "theirs").write_text("readable for all\n")
    os.chown(project / "theirs", 4242, 4343)
    before = fingerprint(project)
    person = powerless(project)
    made = person("checkpoint", "--json", check=False)
    assert made.code in (0, 1), made
    (project / "theirs").unlink()
    broken = fingerprint(project)

    answer = person("rollback", "--json", check=False)
    assert "theirs" in answer.out
    if (project / "theirs").exists():
        assert (project / "theirs").read_text() == "readable for all\n"
        assert "theirs" in named(answer.json["report"])
        assert "theirs" in paths(answer.json["report"]["not_undone"]) or answer.code != 0
        (project / "theirs").unlink()
    else:
        assert answer.code in (4, 5), answer
        assert_tree(project, broken)

    rollback(cli)
    assert_tree(project, before)


def test_F31_what_cannot_be_read_is_named_and_never_deleted(project: Path) -> None:
    """Unreadable files and directories, old and new, are gaps; a rollback leaves them exactly as they are."""
    person = powerless(project)
    (project / "old-file").write_text("old\n")
    (project / "old-file").chmod(0)
    (project / "old-dir").mkdir()
    (project / "old-dir" / "x").write_text("x\n")
    (project / "old-dir").chmod(0)
    made = person("checkpoint", "--json", check=False)
    assert {"old-file", "old-dir"} <= paths(made.json["checkpoint"]["gaps"])

    (project / "new-dir").mkdir()
    (project / "new-dir" / "y").write_text("y\n")
    (project / "new-dir").chmod(0)
    (project / "README.md").write_text("wrecked\n")
    status = person("status", "--json", check=False)
    assert {"old-file", "old-dir", "new-dir"} <= paths(status.json["gaps"])
    answer = person("rollback", "--json", check=False)
    assert answer.code in (0, 1, 6), answer
    assert "new-dir" in named(answer.json["report"])
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"
    for name, inner in (("old-dir", "x"), ("new-dir", "y")):
        assert stat.S_IMODE((project / name).stat().st_mode) == 0
        (project / name).chmod(0o700)
        assert (project / name / inner).read_text() == f"{inner}\n"
    (project / "old-file").chmod(0o600)
    assert (project / "old-file").read_text() == "old\n"


def test_F31_a_file_that_became_unreadable_is_not_taken_for_deleted(project: Path) -> None:
    """It was captured while it was readable; now it is not: nothing claims that it is gone, and nothing is lost."""
    person = powerless(project)
    first = checkpoint(person)
    (project / "src").chmod(0)
    status = person("status", "--json", check=False)
    assert "deleted" not in {change["change"] for change in status.json["changes"]}
    person("checkpoint", check=False)
    (project / "src").chmod(0o755)
    assert (project / "src" / "main.py").exists()
    rollback(person, first)
    assert (project / "src" / "main.py").read_text().startswith("def main()")


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("mode", [0o444, 0o400, 0o600, 0o644])
def test_F31_a_folder_that_can_be_listed_and_not_entered_costs_only_itself(
    project: Path, mode: int, native: str
) -> None:
    """`chmod -R 644`: it is one gap, what is known to be in it is not taken for deleted, and the rest comes back."""
    person = powerless(project)
    env = {"REPRIEVE_NATIVE": native}
    os.link(project / "src" / "util.py", project / "linked.py")
    first = checkpoint(person, env=env)
    chmod = f"echo wrecked > README.md; echo more >> linked.py; echo new > src/new; chmod {mode:o} src"
    ran = person("run", "--", "sh", "-c", chmod, env=env)
    assert "not protected: src" in ran.err
    for _ in range(2):  # what was a gap before is looked at once more
        status = person("status", "--since", first, "--json", check=False, env=env).json
        assert {change["path"]: (change["change"], change["actor"]) for change in status["changes"]} == {
            "README.md": ("modified", "run:sh"),
            "linked.py": ("modified", "run:sh"),
            "src": ("modified", "run:sh"),
        }
        assert paths(status["gaps"]) == {"src"}
        checkpoint(person, env=env)
    answer = person("rollback", first, "--json", check=False, env=env)
    assert answer.code == 6, answer
    assert paths(answer.json["report"]["not_undone"]) == {"src"}
    assert_rolled_back(answer, project, 6)
    assert not (project / "linked.py").read_text().endswith("more\n")
    assert stat.S_IMODE((project / "src").stat().st_mode) == mode
    (project / "src").chmod(0o755)
    assert (project / "src" / "new").read_text() == "new\n"
    assert (project / "src" / "util.py").read_text().endswith("more\n")
    rollback(person, first, "--everything", env=env)
    assert not (project / "src" / "new").exists()
    assert os.path.samefile(project / "src" / "util.py", project / "linked.py")
    assert not (project / "linked.py").read_text().endswith("more\n")


def test_F31_a_first_checkpoint_does_without_a_folder_that_cannot_be_entered(project: Path) -> None:
    """Nothing is known of what is in it but names; a rollback leaves it exactly as it is."""
    person = powerless(project)
    (project / "closed" / "inner").mkdir(parents=True)
    (project / "closed" / "inner" / "x").write_text("x\n")
    (project / "closed" / "y").write_text("y\n")
    (project / "closed").chmod(0o644)
    made = person("checkpoint", "--json", check=False)
    assert paths(made.json["checkpoint"]["gaps"]) == {"closed"}
    (project / "README.md").write_text("wrecked\n")
    assert_rolled_back(person("rollback", "--everything", check=False), project)
    assert stat.S_IMODE((project / "closed").stat().st_mode) == 0o644
    (project / "closed").chmod(0o755)
    assert (project / "closed" / "inner" / "x").read_text() == "x\n"
    assert (project / "closed" / "y").read_text() == "y\n"


@pytest.mark.parametrize(
    "closing",
    [
        "chmod 000 'my src/main.py'",
        "chmod 644 'my src'",
        "chmod 000 'my src'",
        "chmod -R 644 'my src' || true",
        "chmod 000 'my src/main.py' 'my src/inner'; chmod 400 'my src'",
    ],
)
def test_F31_what_an_agent_closed_comes_back_once_it_is_opened(project: Path, closing: str) -> None:
    """The report says what to type; then the same command takes back what the agent did before it closed the door."""
    person = powerless(project)
    (project / "src").rename(project / "my src")
    (project / "my src" / "inner").mkdir()
    (project / "my src" / "inner" / "x").write_text("x\n")
    before = fingerprint(project)
    first = checkpoint(person)
    wreck = "cd 'my src'; echo wrecked | tee main.py > ../README.md; rm util.py inner/x; echo new > inner/new; cd .."
    person("run", "--", "sh", "-c", f"{wreck}; {closing}")

    answer = person("rollback", first, "--json", check=False)
    assert_rolled_back(answer, project, 6)
    for _ in range(2):  # what was closed inside of what was closed is named when that is open
        for gap in answer.json["report"]["not_undone"]:
            typed = gap["reason"].partition("to take it back: ")[2].partition(", then run the same command again")[0]
            subprocess.run(["sh", "-c", typed], cwd=project, check=True)
        opened = fingerprint(project)
        answer = person("rollback", first, "--json", check=False)
        if answer.code == 0:
            break
    assert answer.code == 0, answer
    assert_tree(project, before)
    redo(person)
    assert_tree(project, opened)


def test_F31_what_a_person_closed_and_opened_stays_theirs(project: Path) -> None:
    """Nobody else had anything to do with it: what they wrote in there is kept, as everywhere."""
    person = powerless(project)
    first = checkpoint(person)
    person("run", "--", "sh", "-c", "echo wrecked > README.md")
    (project / "src").chmod(0)
    person("checkpoint", check=False)
    (project / "src").chmod(0o755)
    (project / "src" / "main.py").write_text("mine\n")
    answer = person("rollback", first, "--json", check=False)
    assert_rolled_back(answer, project)
    assert "src/main.py" in paths(answer.json["report"]["kept"])
    assert (project / "src" / "main.py").read_text() == "mine\n"


@pytest.mark.parametrize("mode", [0, 0o311, 0o644])
def test_F31_a_folder_that_was_closed_then_and_is_now_is_left_alone(project: Path, mode: int) -> None:
    """In between it was open, and what was in it is known: nothing is written there unseen, and the rest comes back."""
    person = powerless(project)
    checkpoint(person)
    (project / "src").chmod(mode)
    first = checkpoint(person)
    (project / "src").chmod(0o755)
    (project / "src" / "main.py").write_text("later\n")
    (project / "src" / "new").write_text("new\n")
    checkpoint(person)
    (project / "src").chmod(mode)
    (project / "README.md").write_text("wrecked\n")
    answer = person("rollback", first, "--json", check=False)
    assert_rolled_back(answer, project, 6)
    assert paths(answer.json["report"]["not_undone"]) == {"src/main.py", "src/new"}
    assert stat.S_IMODE((project / "src").stat().st_mode) == mode
    (project / "src").chmod(0o755)
    assert (project / "src" / "main.py").read_text() == "later\n"
    assert (project / "src" / "new").read_text() == "new\n"


@pytest.mark.parametrize("command", [("revert", "src/main.py", "--to"), ("rollback", "--only", "src/main.py")])
def test_F31_a_named_file_in_a_closed_folder_is_not_said_to_be_as_it_was(
    project: Path, command: tuple[str, ...]
) -> None:
    """Nobody can look at it, so nobody knows: it is named as not undone, with exit 6."""
    person = powerless(project)
    first = checkpoint(person)
    person("run", "--", "sh", "-c", "echo wrecked > src/main.py; chmod 000 src")
    answer = person(*command, first, "--json", check=False)
    assert answer.code == 6, answer
    assert paths(answer.json["plan"]["not_undone"]) == {"src/main.py"}
    assert "chmod u+rwX src," in answer.json["plan"]["not_undone"][0]["reason"]


@pytest.mark.parametrize("mode", [0, 0o311, 0o644])
def test_F31_a_protected_folder_that_is_closed_itself_is_named_with_what_to_type(project: Path, mode: int) -> None:
    """It is not said to be unprotected; opened as the hint says, everything in it comes back, and its own mode."""
    person = powerless(project)
    before = fingerprint(project)
    first = checkpoint(person)
    try:
        ran = person("run", "--", "sh", "-c", f"echo wrecked > README.md; chmod {mode:o} '{project}'", check=False)
        answers = [person(*args, check=False) for args in (("status",), ("rollback", first))]
    finally:
        typed = f"chmod u+rwX {project}"
        subprocess.run(["sh", "-c", typed], check=True)
    for answer in (ran, *answers):
        assert answer.code in (3, 10), answer
        assert f"Hint: give yourself the right to it: {typed}\n" in answer.err
    rollback(person, first)
    assert_tree(project, before)


def assert_rolled_back(answer: Result, project: Path, *codes: int) -> None:
    """The rollback was done, if with a warning, and the readme is the old one."""
    assert answer.code in (codes or (0, 1)), answer
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"


# --- mounts -----------------------------------------------------------------------------------------------------


@root_only
@pytest.mark.parametrize("kind", ["tmpfs", "bind", "bindfs"])
def test_F32_a_mount_inside_the_tree_is_not_crossed(cli: Cli, project: Path, tmp_path: Path, kind: str) -> None:
    """It is named, its content is not captured, and no rollback empties, removes or replaces it."""
    source = tmp_path / "source"
    source.mkdir()
    with mounted(kind, project / "mnt", scratch=tmp_path, source=source if kind != "tmpfs" else None) as at:
        (at / "theirs").write_text("not part of the tree\n")
        made = cli("checkpoint", "--json", check=False).json["checkpoint"]
        assert "mnt" in paths(made["gaps"])
        (at / "theirs").write_text("changed\n")
        (at / "more").write_text("more\n")
        (project / "README.md").write_text("wrecked\n")
        assert_rolled_back(cli("rollback", check=False), project)
        assert (at / "theirs").read_text() == "changed\n"
        assert (at / "more").read_text() == "more\n"


@root_only
def test_F32_a_mount_that_came_later_is_not_emptied(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Mounted after the checkpoint, over a captured directory or inside a new one: left alone and named."""
    checkpoint(cli)
    (project / "new").mkdir()
    (project / "new" / "plain").write_text("plain\n")
    with (
        mounted("tmpfs", project / "src", scratch=tmp_path) as over,
        mounted("tmpfs", project / "new" / "mnt", scratch=tmp_path) as inside,
    ):
        (over / "theirs").write_text("over\n")
        (inside / "theirs").write_text("inside\n")
        (project / "README.md").write_text("wrecked\n")
        answer = cli("rollback", "--json", check=False)
        assert answer.code in (0, 1, 4, 5, 6), answer
        assert "new/mnt" in answer.out or "src" in answer.out
        assert (over / "theirs").read_text() == "over\n"
        assert (inside / "theirs").read_text() == "inside\n"
    assert (project / "src" / "main.py").exists()
    assert_rolled_back(cli("rollback", check=False), project)


@root_only
@pytest.mark.parametrize("native", ["1", "0"], ids=["c", "python"])
def test_F32_a_file_or_folder_bound_from_the_same_file_system_is_left_alone(
    cli: Cli, project: Path, tmp_path: Path, native: str
) -> None:
    """Its device is the tree's own: named all the same, before and after, and the rest goes back around it."""
    env = {"REPRIEVE_NATIVE": native, "REPRIEVE_HELPER": "off"}
    source, folder, odd = tmp_path / "env", tmp_path / "folder", project / "odd \\ name"
    source.write_text("outside\n")
    folder.mkdir()
    (folder / "theirs").write_text("outside\n")
    (project / "later").write_text("outside\n")
    (project / "later").chmod(0o644)
    source.chmod(0o600)
    with mounted("bind", project / ".env", scratch=tmp_path, source=source):
        made = cli("checkpoint", "--json", check=False, env=env).json["checkpoint"]
        assert paths(made["gaps"]) == {".env"}
        with (
            mounted("bind", project / "later", scratch=tmp_path, source=source),
            mounted("bind", odd, scratch=tmp_path, source=folder),
        ):
            (project / ".env").write_text("agent\n")
            (project / "README.md").write_text("wrecked\n")
            answer = cli("rollback", "--json", check=False, env=env)
            assert answer.code == 6
            assert paths(answer.json["report"]["not_undone"]) == {"later", odd.name}
            assert source.read_text() == "agent\n" and source.stat().st_mode & 0o777 == 0o600
            assert (folder / "theirs").exists()
            assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"
    odd.rmdir()
    assert cli("checkpoint", "--json", env=env).json["checkpoint"]["gaps"] == []  # no mount any more


@root_only
def test_F32_a_mount_that_is_excluded_is_not_named_for_being_one(cli: Cli, project: Path, tmp_path: Path) -> None:
    source = tmp_path / "env"
    source.write_text("outside\n")
    write_accepted(project, 'exclude = [".env", "cache"]\n')
    (project / "cache").mkdir()
    with (
        mounted("bind", project / ".env", scratch=tmp_path, source=source),
        mounted("bind", project / "cache" / "file", scratch=tmp_path, source=source),
    ):
        gaps = cli("checkpoint", "--json").json["checkpoint"]["gaps"]
    assert {(gap["path"], gap["reason"]) for gap in gaps} == {
        (".env", "excluded by configuration"),
        ("cache", "excluded by configuration"),
    }


@root_only
def test_F32_a_mount_in_the_way_of_a_rollback_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    """With cross_mounts it is part of the tree, and can't be replaced: nothing is touched, and the path is said."""
    env = {"REPRIEVE_CROSS_MOUNTS": "1"}
    source = tmp_path / "env"
    source.write_text("good\n")
    with mounted("bind", project / ".env", scratch=tmp_path, source=source) as at:
        cli("checkpoint", env=env)
        at.write_text("bad\n")
        answer = cli("rollback", check=False, env=env)
        assert answer.code == 5 and "'.env': Device or resource busy" in answer.err
        assert at.read_text() == "bad\n"


@root_only
def test_F32_a_mount_is_crossed_when_asked(cli: Cli, project: Path, tmp_path: Path) -> None:
    """With cross_mounts its content is part of the tree."""
    env = {"REPRIEVE_CROSS_MOUNTS": "1"}
    with mounted("tmpfs", project / "mnt", scratch=tmp_path) as at:
        (at / "f").write_text("good\n")
        made = cli("checkpoint", "--json", env=env).json["checkpoint"]
        assert "mnt" not in paths(made["gaps"])
        (at / "f").write_text("bad\n")
        (at / "g").write_text("made\n")
        rollback(cli, env=env)
        assert (at / "f").read_text() == "good\n"
        assert not (at / "g").exists()


@root_only
def test_F47_files_without_an_end_or_a_size(cli: Cli, project: Path, tmp_path: Path) -> None:
    """/proc and /sys files inside the tree: every command ends, with and without crossing mounts, and names them."""
    with (
        mounted("bind", project / "proc", scratch=tmp_path, source=Path("/proc/sys/kernel")),
        mounted("bind", project / "kmsg", scratch=tmp_path, source=Path("/proc/kmsg")),
        mounted("bind", project / "uptime", scratch=tmp_path, source=Path("/proc/uptime")),
    ):
        made = cli("checkpoint", "--json", timeout=30, check=False)
        assert made.code in (0, 1), made
        assert {"proc", "kmsg", "uptime"} <= paths(made.json["checkpoint"]["gaps"])
        (project / "README.md").write_text("wrecked\n")
        assert_rolled_back(cli("rollback", timeout=30, check=False), project)
        crossed = cli("checkpoint", "--json", timeout=60, check=False, env={"REPRIEVE_CROSS_MOUNTS": "1"})
        assert crossed.code in (0, 1), crossed
        assert "kmsg" in paths(crossed.json["checkpoint"]["gaps"])
