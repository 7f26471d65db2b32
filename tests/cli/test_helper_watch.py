"""The helper follows a tree: checkpoints through the installed command are the same, and look at less."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.cli.helper.place import followed
from support.helper import Installed, is_gone, until
from support.mischief import Mischief
from support.mounts import mounted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the helper is Linux's")


@pytest.fixture
def installed(tmp_path: Path, project: Path) -> Iterator[Installed]:
    one = Installed(tmp_path / "installed")
    one.env["REPRIEVE_CONFIG"] = str(tmp_path / "config.toml")
    yield one
    one.close()


def checkpoint(installed: Installed, root: Path, **env: str) -> dict[str, object]:
    done = installed.run("checkpoint", "--json", cwd=root, env=env)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)["checkpoint"]
    return answer


def follow(installed: Installed, root: Path) -> int:
    """Have the tree followed; the helper's process number."""
    pid = installed.warm(root)
    checkpoint(installed, root)
    until(lambda: followed(str(installed.home), bytes(root))[0])
    checkpoint(installed, root)  # the first whose index says since when
    return pid


def changes(installed: Installed, root: Path, **env: str) -> object:
    done = installed.run("status", "--json", cwd=root, env=env)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["changes"], answer["gaps"]


def test_a_followed_tree_gives_the_same_as_one_that_is_looked_at(installed: Installed, tmp_path: Path) -> None:
    """Random changes by this process and by git; each answer is compared with that of a command without helper."""
    root, outside = tmp_path / "followed", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "gc.auto=0"]
    subprocess.run([*git, "init", "-q"], cwd=root, check=True)
    world = Mischief(root, outside, seed=7)
    pid = follow(installed, root)
    try:
        for number in range(25):
            for _ in range(3):
                world.act()
            if number % 6 == 5:
                for words in (["add", "-A"], ["commit", "-qm", str(number)], ["checkout", "-q", "-b", f"b{number}"]):
                    subprocess.run([*git, *words], cwd=root, check=False, capture_output=True)
            heard = changes(installed, root)
            assert heard == changes(installed, root, REPRIEVE_HELPER="off"), world.done[-12:]
            checkpoint(installed, root)
            assert changes(installed, root, REPRIEVE_HELPER="off") == ([], changes(installed, root)[1])  # type: ignore[index]
            if number % 5 == 4:
                world.close()  # nobody writes while it moves
                done = installed.run("rollback", "~2", "--everything", "--json", cwd=root)
                assert done.returncode == 0, done.stdout
                assert changes(installed, root) == changes(installed, root, REPRIEVE_HELPER="off"), world.done[-12:]
    finally:
        world.close()
    assert installed.pid == pid and followed(str(installed.home), bytes(root))[0]


def test_a_checkpoint_of_a_followed_tree_does_not_look_at_it(installed: Installed, project: Path) -> None:
    for number in range(300):
        (project / f"f{number}").write_text("x")
    os.utime(project, (1, 1))
    pid = follow(installed, project)
    assert _stats(installed, pid, project) < 30
    (project / "f7").write_text("other")
    made = checkpoint(installed, project)
    assert made["changed"] == 1


def _stats(installed: Installed, pid: int, root: Path) -> int:
    """System calls on names in the tree that one checkpoint takes."""
    strace = subprocess.run(["sh", "-c", "command -v strace"], capture_output=True, check=False).stdout.strip()
    if not strace:
        pytest.skip("strace is not installed")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    options = [word for process in (str(pid), *children) for word in ("-p", process)]
    with subprocess.Popen(
        [strace, "-f", "-e", "trace=newfstatat,statx", *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as trace:
        assert trace.stderr is not None
        if b"attached" not in trace.stderr.readline():
            pytest.skip("processes cannot be traced here")
        checkpoint(installed, root)
        trace.terminate()
        return sum(b'"f' in line for line in trace.stderr.read().splitlines())


def test_it_can_be_switched_off(installed: Installed, project: Path) -> None:
    env = {"REPRIEVE_HELPER_WATCH": "off"}
    assert installed.warm(project)
    for _ in range(2):
        checkpoint(installed, project, **env)
    assert followed(str(installed.home), bytes(project)) == (False, "")


def test_doctor_tells_whether_a_folder_is_followed(installed: Installed, project: Path) -> None:
    def watch(**env: str) -> str:
        findings = json.loads(installed.run("doctor", "--json", cwd=project, env=env).stdout)["findings"]
        return next(one["text"] for one in findings if one["subject"] == "watch")

    installed.warm(project)
    assert watch() == "every checkpoint looks at the whole folder"
    follow(installed, project)
    assert "the helper follows this folder" in watch()
    assert "switched off" in watch(REPRIEVE_HELPER_WATCH="off")


def test_a_folder_that_another_took_the_place_of_is_no_longer_spoken_of(installed: Installed, project: Path) -> None:
    follow(installed, project)
    project.rename(project.with_name("before"))
    until(lambda: not followed(str(installed.home), bytes(project))[0])
    shutil.copytree(project.with_name("before"), project, symlinks=True)
    until(lambda: bool(checkpoint(installed, project)) and followed(str(installed.home), bytes(project))[0])
    names = [line for line in (installed.home / "locks" / "helper").read_text().splitlines() if "\t" in line]
    assert len(names) == 1, names


def test_what_a_helper_followed_that_was_killed_is_not_claimed(installed: Installed, project: Path) -> None:
    pid = follow(installed, project)
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid))
    assert installed.warm(project) != pid
    assert followed(str(installed.home), bytes(project)) == (False, "")


def test_a_mount_inside_ends_it_and_is_seen(installed: Installed, project: Path, tmp_path: Path) -> None:
    """Mounting is no event of the directory that is hidden."""
    (project / "inner").mkdir()
    (project / "inner" / "hidden").write_text("x")
    follow(installed, project)
    with mounted("tmpfs", project / "inner", scratch=tmp_path):
        _, gaps = changes(installed, project)  # type: ignore[misc]
        assert [gap["path"] for gap in gaps] == ["inner"]
        assert "mounted inside" in followed(str(installed.home), bytes(project))[1]
    assert changes(installed, project)[1] == []  # type: ignore[index]


def test_a_followed_file_system_can_be_unmounted(installed: Installed, project: Path, tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "disk", scratch=tmp_path) as disk:
        (disk / "tree").mkdir()
        (disk / "tree" / "f").write_text("x")
        follow(installed, disk / "tree")
    assert not os.path.ismount(tmp_path / "disk")


def test_a_rollback_of_a_followed_tree_is_exact_and_can_be_redone(installed: Installed, project: Path) -> None:
    follow(installed, project)
    before = (project / "main.py").read_bytes() if (project / "main.py").exists() else None
    (project / "main.py").write_bytes(b"broken")
    (project / "new").mkdir()
    (project / "new" / "f").write_bytes(b"x")
    checkpoint(installed, project)
    (project / "main.py").write_bytes(b"more")
    done = installed.run("rollback", "~1", "--everything", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    assert not (project / "new").exists()
    assert ((project / "main.py").read_bytes() if before is not None else None) == before
    done = installed.run("redo", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    assert (project / "main.py").read_bytes() == b"more" and (project / "new" / "f").read_bytes() == b"x"
    assert changes(installed, project) == changes(installed, project, REPRIEVE_HELPER="off")


def test_what_a_rollback_replaced_is_out_of_the_way_at_once_and_gone_soon(installed: Installed, project: Path) -> None:
    follow(installed, project)
    for number in range(60):
        (project / f"f{number}").write_bytes(b"before" * number)
    wanted = {path.name: path.read_bytes() for path in project.glob("f*")}
    checkpoint(installed, project)
    for round in range(3):
        for number in range(60):
            (project / f"f{number}").write_bytes(b"after" * (number + round))
        done = installed.run("rollback", "--everything", "--json", cwd=project)
        assert done.returncode == 0, done.stderr
        assert not [name for name in os.listdir(project) if name.startswith(".reprieve-")]
        assert {path.name: path.read_bytes() for path in project.glob("f*")} == wanted
        until(lambda: not os.listdir(installed.home / "tmp"))
        checkpoint(installed, project)
