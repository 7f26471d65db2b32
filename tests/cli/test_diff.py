"""`reprieve diff`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import Cli
from support.settings import write_accepted
from support.terminal import at_terminal


def test_from_the_latest_checkpoint_to_now(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "src" / "util.py").write_text("ANSWER = 43\n")
    assert cli("diff").out == (
        "diff --git a/src/util.py b/src/util.py\n"
        "--- a/src/util.py\n+++ b/src/util.py\n@@ -1 +1 @@\n-ANSWER = 42\n+ANSWER = 43\n"
    )


def test_between_two_checkpoints_in_either_direction(cli: Cli, project: Path) -> None:
    cli("checkpoint", "one")
    (project / "new").write_text("x\n")
    cli("checkpoint", "two")
    (project / "new").write_text("later\n")
    assert "+x\n" in cli("diff", "one", "two").out
    assert "-x\n" in cli("diff", "two", "one").out
    assert cli("diff", "one", "two", "--json").json["changes"][0]["change"] == "created"
    assert cli("diff", "two", "one", "--json").json["changes"][0]["change"] == "deleted"


def test_only_some_paths_relative_to_where_one_stands(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    for name in ("src/util.py", "src/main.py", "README.md"):
        (project / name).write_text("x\n")
    paths = [c["path"] for c in cli("diff", "--json", "--", "util.py", cwd=project / "src").json["changes"]]
    assert paths == ["src/util.py"]
    assert len(cli("diff", "--json", "--", "src").json["changes"]) == 2
    assert cli("diff", "--", "/etc/passwd", check=False).code == 2


def test_stat(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "README.md").write_text("# A project\n\nIt did things.\nMore.\n")
    (project / "data.bin").write_bytes(b"\0")
    out = cli("diff", "--stat").out
    assert " README.md | 3 ++-\n" in out
    assert " data.bin  | binary (4.1 kB, now 1 byte)\n" in out
    assert out.endswith("2 paths changed, 2 lines added, 1 line removed\n")


def test_a_pipe_gets_the_bytes_and_a_terminal_none_that_harm_it(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "README.md").write_bytes(b"\x1b[2J latin1: \xe9\ttab\n")
    raw = subprocess.run([sys.executable, "-m", "reprieve", "diff"], cwd=project, capture_output=True, check=True)
    assert b"+\x1b[2J latin1: \xe9\ttab\n" in raw.stdout
    _, screen = at_terminal("diff", cwd=project, env={"NO_COLOR": "1"})
    assert "+\\x1b[2J latin1: \\xe9\ttab" in screen


def test_the_output_is_a_patch(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Applied to a copy of the old tree it gives the new one."""
    cli("checkpoint")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", project, copy], check=True)
    (project / "src" / "main.py").write_text("print('bye')")
    (project / "src" / "util.py").unlink()
    (project / "added.txt").write_text("one\ntwo\n")
    (project / "no-newline.txt").write_text("the last line has an end\n")
    patch = cli("diff").out
    subprocess.run(["git", "apply", "-"], cwd=copy, input=patch.encode(), check=True)
    for path in project.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert (copy / path.relative_to(project)).read_bytes() == path.read_bytes()
    assert not (copy / "src" / "util.py").exists()


def test_nothing_differs(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("diff").out == ""
    assert cli("diff", "--json").json["changes"] == []


@pytest.mark.parametrize("more", [[], ["--stat"], ["--", "README.md"]])
def test_without_a_checkpoint_it_says_what_status_says(cli: Cli, more: list[str]) -> None:
    """Nothing to compare with is not "nothing differs"."""
    cli("init")
    assert cli("diff", *more).out == cli("status").out
    assert "No checkpoint yet" in cli("diff", *more).out
    assert cli("diff", "--json", *more).json["since"] is None
    made = cli("checkpoint", "--json").json["checkpoint"]["id"]
    assert cli("diff", "--json", *more).json["since"]["id"] == made


def test_a_large_file_is_told_and_not_drawn(cli: Cli, project: Path) -> None:
    (project / "large").write_bytes(b"line\n" * 2_000_000)
    cli("checkpoint")
    with open(project / "large", "ab") as file:
        file.write(b"more\n")
    assert "not compared line by line" in cli("diff").out
    (change,) = cli("diff", "--json").json["changes"]
    assert (change["path"], change["change"]) == ("large", "modified")


def test_a_name_of_any_bytes(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / os.fsdecode(b"-\xff\n")).write_text("x")
    (change,) = cli("diff", "--json", "--", b"-\xff\n").json["changes"]
    assert os.fsencode(change["path"]) == b"-\xff\n"


def test_git_takes_the_rest_of_a_patch_with_a_binary_file_in_it(cli: Cli, project: Path) -> None:
    (project / "a.bin").write_bytes(b"\0\1")
    (project / "b.txt").write_text("x\n")
    cli("checkpoint")
    (project / "a.bin").write_bytes(b"\0\2")
    (project / "b.txt").write_text("y\n")
    patch = cli("diff").out
    assert "Binary files a/a.bin and b/a.bin differ\n" in patch
    words = ["git", "apply", "-R", "--exclude=a.bin", "-"]
    subprocess.run(words, input=patch, text=True, cwd=project, check=True)
    assert (project / "b.txt").read_text() == "x\n"


def test_stat_says_why_an_excluded_file_is_not_compared(cli: Cli, project: Path) -> None:
    write_accepted(project, 'exclude = ["*.log"]\n')
    (project / "x.log").write_text("hello")
    cli("checkpoint")
    (project / "x.log").unlink()
    line = next(line for line in cli("diff", "--stat").out.splitlines() if "x.log" in line)
    assert "not compared" in line and "0 bytes" not in line
