"""`reprieve bisect`."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.app.bisect import bisect
from reprieve.app.finding import open_workspace
from support import Cli
from support.acts import assert_tree, checkpoint, command, powerless, rollback, running, wait_until
from support.tree import Fingerprint, erase, fingerprint
from support.worlds import clear, fifty, scratch_base, two_of_fifty, wreck

TESTS = Path(__file__).resolve().parents[1]
# What a probe sees, written down outside the copy; then it leaves behind what a careless program leaves behind.
LOOK = f"""
import os, pickle, socket, sys
sys.path.insert(0, {str(TESTS)!r})
from support.tree import fingerprint
seen, real, limit = sys.argv[1:]
with open(os.path.join(seen, "%02d" % len(os.listdir(seen))), "wb") as file:
    pickle.dump((fingerprint(os.getcwd()), fingerprint(real)), file)
is_bad = len([n for n in os.listdir(".") if n.startswith("mark")]) >= int(limit)
os.mkdir("left"); os.mkdir("left/behind"); open("left/behind/junk", "w").close(); os.chmod("left", 0)
for name in ("a", "link"):
    if os.path.lexists(name):
        os.rename(name, name + "-moved")
os.mkfifo("fifo-left"); socket.socket(socket.AF_UNIX).bind("socket-left")
sys.exit(is_bad)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files of this test's own; whatever happens, nothing is left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert os.listdir(folder) == []


@pytest.fixture
def nine(project: Path) -> list[str]:
    """Nine steps; the sixth breaks it. Their ids."""
    ids = []
    with open_workspace(str(project), create=True) as ws:
        for number in range(1, 10):
            (project / f"f{number}").write_text(f"{number}\n")
            if number == 6:
                (project / "src" / "util.py").write_text("ANSWER = 41\n")
            ids.append(ws.checkpoint(f"step {number}", note=f"prompt {number}").entry.id)
    return ids


RIGHT = ("grep", "-q", "ANSWER = 42", "src/util.py")


def times(root: Path) -> dict[str, tuple[int, int]]:
    """mtime and ctime of everything: any touch shows."""
    return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_ctime_ns) for p in [root, *root.rglob("*")]}


def test_it_names_the_first_bad_step_with_its_prompt_and_diff(cli: Cli, project: Path, nine: list[str]) -> None:
    before, touched = fingerprint(project), times(project)
    said = cli("bisect", "--", *RIGHT)
    assert f'First bad step, found in 5 runs: {nine[5]}  "step 6"' in said.out
    assert "prompt 6" in said.out
    assert "-ANSWER = 42\n+ANSWER = 41\n" in said.out
    assert said.out.endswith(f"Take it back: reprieve undo {nine[5]}\n")
    assert_tree(project, before)
    assert times(project) == touched
    assert [e["id"] for e in cli("log", "--json").json["entries"]] == nine[::-1]


def test_what_it_prints_takes_the_step_back(cli: Cli, project: Path, nine: list[str]) -> None:
    """The later steps stay, and the command succeeds again."""
    undo = cli("bisect", "--json", "--", *RIGHT).json["undo"]
    cli(*undo.split()[1:])
    assert (project / "src" / "util.py").read_text() == "ANSWER = 42\n"
    assert not (project / "f6").exists()
    assert (project / "f9").exists()


def test_what_it_prints_takes_a_persons_edit_back_and_not_the_run_after_it(cli: Cli, project: Path) -> None:
    cli("run", "--label", "r0", "--", "touch", "zero")
    (project / "README.md").unlink()
    cli("run", "--label", "r1", "--", "touch", "innocent")
    answer = cli("bisect", "--json", "--", "test", "-e", "README.md").json
    assert answer["first_bad"]["label"] == "before r1"
    cli(*answer["undo"].split()[1:])
    assert (project / "README.md").exists() and (project / "innocent").exists()


def test_it_prints_no_undo_where_part_of_the_step_was_pruned(cli: Cli, nine: list[str]) -> None:
    cli("pin", nine[0])
    cli("prune", "--keep-last", "3", "--keep-days", "0", "--yes")
    answer = cli("bisect", "--json", "--", "test", "!", "-e", "f3").json
    assert (answer["first_bad"]["id"], answer["undo"]) == (nine[6], None)
    said = cli("bisect", "--", "test", "!", "-e", "f3").out
    assert "reprieve undo" not in said and said.endswith(f"reprieve rollback {nine[0]}\n")


def test_json_is_one_object(cli: Cli, nine: list[str]) -> None:
    answer = cli("bisect", "--json", "--", "sh", "-c", "echo noise; grep -q 42 src/util.py").json
    assert (answer["ok"], answer["command"]) == (True, "bisect")
    assert answer["first_bad"]["id"] == nine[5]
    assert answer["first_bad"]["note"] == "prompt 6"
    assert answer["good"]["id"] == nine[4]
    assert answer["runs"] == len(answer["tried"]) == 5
    assert {change["path"]: change["change"] for change in answer["changes"]} == {
        "f6": "created",
        "src/util.py": "modified",
    }


def test_now_is_the_end_and_no_new_latest(cli: Cli, project: Path, nine: list[str]) -> None:
    """What is not in a checkpoint yet can be the bad step; a plain rollback still goes where it went before."""
    (project / "src" / "util.py").write_text("ANSWER = 42\n")
    checkpoint(cli, "mended")
    (project / "README.md").unlink()
    answer = cli("bisect", "mended", "--json", "--", "test", "-e", "README.md").json
    assert answer["good"]["label"] == "mended"
    assert [change["path"] for change in answer["changes"]] == ["README.md"]
    assert not (project / "README.md").exists()
    rollback(cli)
    assert (project / "README.md").exists()


def test_a_run_is_named_by_its_actor_and_label(cli: Cli) -> None:
    cli("run", "--label", "fine", "--", "touch", "one")
    cli("run", "--label", "breaks it", "--", "rm", "README.md")
    cli("run", "--label", "harmless", "--", "touch", "two")
    first = cli("bisect", "--json", "--", "test", "-e", "README.md").json["first_bad"]
    assert (first["label"], first["actor"]) == ("breaks it", "run:breaks it")


def test_it_runs_where_the_caller_stands(cli: Cli, project: Path, nine: list[str]) -> None:
    answer = cli("bisect", "--json", "--", "grep", "-q", "42", "util.py", cwd=project / "src").json
    assert answer["first_bad"]["id"] == nine[5]


def test_a_folder_that_was_not_there_cannot_be_tested(cli: Cli, project: Path) -> None:
    checkpoint(cli)
    (project / "later").mkdir()
    checkpoint(cli)
    (project / "x").touch()
    result = cli("bisect", "--", "test", "!", "-e", "../x", cwd=project / "later", check=False)
    assert result.code == 2
    assert "GOOD" in result.err and "later" in result.err


def test_a_link_in_the_place_of_the_callers_folder_is_not_followed(cli: Cli, project: Path, tmp_path: Path) -> None:
    (project / "later").symlink_to(tmp_path)
    checkpoint(cli)
    (project / "later").unlink()
    (project / "later").mkdir()
    checkpoint(cli)
    result = cli("bisect", "--", "touch", "escaped", cwd=project / "later", check=False)
    assert result.code == 2
    assert not (tmp_path / "escaped").exists()


def test_125_passes_over_a_step(cli: Cli, nine: list[str]) -> None:
    script = "test -e f5 && ! test -e f8 && exit 125; grep -q 42 src/util.py"
    result = cli("bisect", "--json", "--", "sh", "-c", script, check=False)
    assert result.code == 1
    assert result.json["first_bad"] is None
    assert [entry["id"] for entry in result.json["suspects"]] == nine[4:8]
    assert "one of 4" in cli("bisect", "--", "sh", "-c", script, check=False).out


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("exit 0", 2, "succeeds at BAD"),
        ("exit 3", 2, "fails at GOOD"),
        ("exit 125", 2, "cannot be tested at BAD"),
        ("exit 128", 6, "stopped"),
        ("exit 255", 6, "stopped"),
        ("kill -KILL $$", 6, "signal 9"),
    ],
)
def test_an_answer_that_makes_no_sense_stops_it(cli: Cli, nine: list[str], script: str, code: int, words: str) -> None:
    result = cli("bisect", "--", "sh", "-c", script, check=False)
    assert result.code == code
    assert words in result.err


def test_ends_that_make_no_sense_are_refused(cli: Cli, nine: list[str]) -> None:
    assert "not older" in cli("bisect", nine[3], nine[2], "--", "true", check=False).err
    assert "not older" in cli("bisect", nine[3], nine[3], "--", "true", check=False).err
    assert cli("bisect", "nothing-like-this", "--", "true", check=False).code == 2
    assert cli("bisect", check=False).code == 2
    checkpoint(cli, "same again")
    assert "nothing changed" in cli("bisect", nine[8], "--", "true", check=False).err
    assert "no such command" in cli("bisect", "--", "no-such-command-anywhere", check=False).err


def test_what_was_pruned_is_passed_over(cli: Cli, nine: list[str]) -> None:
    cli("prune", "--keep-last", "3", "--keep-days", "0", "--yes")
    left = [e["id"] for e in cli("log", "--json").json["entries"]]
    answer = cli("bisect", "--json", "--", "test", "!", "-e", "f8").json
    assert answer["first_bad"]["id"] == nine[7]
    assert {p["id"] for p in answer["tried"]} <= set(left)


@pytest.mark.parametrize("is_powerless", [False, True])
def test_every_copy_is_exact_and_the_tree_stays_untouched_meanwhile(
    cli: Cli, project: Path, tmp_path: Path, is_powerless: bool
) -> None:
    """Modes, times, links, xattrs: as at the checkpoint, whatever the run before left in the copy."""
    run = powerless(project) if is_powerless else cli
    erase(project, keep_root=True)
    wanted: dict[str, Fingerprint] = {}
    doings = (fifty, two_of_fifty, wreck, clear, fifty, wreck, lambda root: (root / "last").mkdir())
    for number, do in enumerate(doings):
        do(project)
        (project / f"mark{number}").touch()
        wanted[checkpoint(run)] = fingerprint(project)
    seen = tmp_path / "seen"
    seen.mkdir()
    answer = run("bisect", "--json", "--", sys.executable, "-c", LOOK, str(seen), str(project), "3").json
    at_the_end = fingerprint(project)
    assert at_the_end == wanted[list(wanted)[-1]]
    tried = [probe["id"] for probe in answer["tried"]]
    assert len(tried) >= 4
    for number, id in enumerate(tried):
        copy, real = pickle.loads((seen / f"{number:02d}").read_bytes())
        assert copy == wanted[id], id
        assert real == at_the_end


def test_commands_in_the_copy_know_nothing_of_the_real_folder(cli: Cli, project: Path, nine: list[str]) -> None:
    """reprieve and git inside the copy work on the copy, even when the environment names the real ones."""
    inside = f"'{sys.executable}' -m reprieve checkpoint inside || exit 255"
    script = f'{inside}; test -z "$GIT_DIR" && test "$PWD" = "$(pwd)" || exit 255; exec "$0" "$@"'
    env = {"REPRIEVE_RUN": "1", "GIT_DIR": str(project / ".git"), "GIT_WORK_TREE": str(project)}
    answer = cli("bisect", "--json", "--", "sh", "-c", script, *RIGHT, env=env).json
    assert answer["first_bad"]["id"] == nine[5]
    assert [e["id"] for e in cli("log", "--json").json["entries"]] == nine[::-1]


def test_a_variable_that_names_the_real_folder_is_said(cli: Cli, project: Path, nine: list[str]) -> None:
    assert "MY_PATH" in cli("bisect", "--", *RIGHT, env={"MY_PATH": f"/usr/bin:{project}/src"}).err
    assert "MY_PATH" not in cli("bisect", "--", *RIGHT, env={"MY_PATH": f"{project}-other"}).err


def test_temporary_files_inside_the_tree_are_avoided(cli: Cli, project: Path, nine: list[str]) -> None:
    (project / "tmp").mkdir()
    before, touched = fingerprint(project), times(project)
    script = 'f=$(mktemp) && rm "$f" || exit 255; exec "$0" "$@"'
    cli("bisect", "--", "sh", "-c", script, *RIGHT, env={"TMPDIR": str(project / "tmp")})
    assert_tree(project, before)
    assert times(project) == touched


def test_what_the_command_leaves_running_is_ended(cli: Cli, nine: list[str], tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = f"sleep 600 & echo $! >> {note}; grep -q 42 src/util.py"
    cli("bisect", "--", "sh", "-c", script)
    pids = [int(line) for line in note.read_text().split()]
    assert len(pids) == 5
    wait_until(lambda: not any(map(is_alive, pids)), what="the processes of the probes to end")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("manner", ["", "trap '' TERM INT HUP;"])
def test_interrupted_it_leaves_nothing_behind(
    cli: Cli, project: Path, nine: list[str], tmp_path: Path, number: signal.Signals, code: int, manner: str
) -> None:
    """Copy gone, command and its children ended (even if they would not hear), tree untouched, the store in order."""
    before, touched = fingerprint(project), times(project)
    note = tmp_path / "pids"
    script = f"{manner} sleep 600 & echo $$ $! > {note}.new; mv {note}.new {note}; wait"
    with running(
        *command("bisect", "--", "sh", "-c", script), cwd=project, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        wait_until(note.exists, what="the command to begin")
        os.killpg(process.pid, number)  # as the terminal does for Ctrl-C
        assert process.wait(timeout=30) == code
    pids = [int(word) for word in note.read_text().split()]
    wait_until(lambda: not any(map(is_alive, pids)), what="its processes to end")
    assert_tree(project, before)
    assert times(project) == touched
    cli("verify")


@pytest.mark.parametrize("seeds", [range(25), range(25, 50)], ids=str)  # in two, for two processors
def test_bisect_finds_the_planted_step_in_50_histories_of_64_steps(
    home: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """At most 8 runs each; the tree is byte-identical before, while and after."""
    with tempfile.TemporaryDirectory(dir=scratch_base()) as fast:
        monkeypatch.setenv("REPRIEVE_HOME", os.path.join(fast, "home"))
        for seed in seeds:
            rnd = random.Random(seed)
            root = Path(fast) / f"tree-{seed}"
            planted = rnd.randint(1, 64)
            with open_workspace(str(root_of(root, rnd)), create=True, exactly=True) as ws:
                ids = [ws.checkpoint("start").entry.id]
                for number in range(1, 65):
                    step(root, rnd, number)
                    if number == planted:
                        BREAKS[seed % len(BREAKS)](root)
                    ids.append(ws.checkpoint(f"step {number}").entry.id)
                    if rnd.random() < 0.2:
                        ws.checkpoint("no change")  # costs no run
                before, touched = fingerprint(root), times(root)
                found = bisect(ws, ["sh", "check.sh", str(root)], is_silent=True)
                assert [e.id for e in found.suspects] == [ids[planted]], f"seed {seed}"
                assert found.good.id == ids[planted - 1]
                assert len(found.probes) <= 8
                assert fingerprint(root) == before
                assert times(root) == touched


CHECK = """\
test ! -e .probed && touch .probed || exit 255
grep -q right state.txt && test -x tool && test -e needed && test "$(readlink current)" = one
"""
BREAKS = (
    lambda root: (root / "state.txt").write_text("wrong\n"),
    lambda root: (root / "tool").chmod(0o644),
    lambda root: (root / "needed").rename(root / "renamed"),
    lambda root: ((root / "current").unlink(), (root / "current").symlink_to("two")),
)


def root_of(root: Path, rnd: random.Random) -> Path:
    """A small tree with a check in it."""
    (root / "d").mkdir(parents=True)
    (root / "check.sh").write_text(CHECK)
    (root / "state.txt").write_text("right\n")
    (root / "tool").touch(0o755)
    (root / "needed").touch()
    (root / "current").symlink_to("one")
    for number in range(6):
        (root / "d" / f"n{number}").write_bytes(rnd.randbytes(rnd.randrange(2000)))
    return root


def step(root: Path, rnd: random.Random, number: int) -> None:
    """Some work that has nothing to do with the check."""
    files = [p for p in (root / "d").rglob("*") if p.is_file()]
    kind = rnd.choice(("edit", "make", "make", "delete", "move", "folder"))
    if kind == "edit" and files:
        rnd.choice(files).write_text(f"edited {number}\n")
    elif kind == "delete" and files:
        rnd.choice(files).unlink()
    elif kind == "move" and files:
        rnd.choice(files).rename(root / "d" / f"moved{number}")
    elif kind == "folder":
        (root / "d" / f"folder{number}").mkdir()
        (root / "d" / f"folder{number}" / "in").write_text("x")
    else:
        (root / "d" / f"made{number}").write_text(f"{number}\n")


def test_completion_offers_points_and_commands(cli: Cli, nine: list[str]) -> None:
    assert nine[0] in cli("__complete", "--", "bisect", "").out
    assert cli("__complete", "--", "bisect", "latest", "--", "").out.strip() == ":commands"
    assert json.loads(cli("__complete", "--json", "--", "bis").out)["candidates"][0]["text"] == "bisect"
