"""A watch over people and storms: editors at work (K12), more events than the kernel keeps (K13)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support import Cli
from support.acts import changes, wait_until
from support.watching import watching

QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


def saved_by_vim(file: Path, text: str) -> None:
    """As vim saves with a backup: the old file moves away, a new one takes its name, the old one goes."""
    swap = file.with_name(f".{file.name}.swp")
    swap.write_bytes(b"b0VIM 9.0" + bytes(4000))
    probe = file.with_name("4913")
    probe.touch()
    probe.unlink()
    backup = file.with_name(file.name + "~")
    file.rename(backup)
    file.write_text(text)
    backup.unlink()


def saved_by_rename(file: Path, text: str) -> None:
    """As most editors save: a new file is renamed over the old one."""
    new = file.with_name(f".{file.name}.tmp")
    new.write_text(text)
    new.rename(file)


def entries(cli: Cli) -> list[tuple[str, int]]:
    """(label, paths changed) of every step that the watch caught, oldest first."""
    found = cli("log", "--json").json["entries"]
    return [(e["label"], e["changed"]) for e in reversed(found) if e["step"] == "watch"]


def test_K12_a_save_is_one_step_and_swap_files_are_none(cli: Cli, project: Path) -> None:
    """Ten saves by two editors, with swap files written in between: ten steps, each about the file alone."""
    (project / ".README.md.swp").write_bytes(b"b0VIM 9.0" + bytes(4000))
    with watching(project) as watch:
        for number in range(5):
            (project / ".README.md.swp").write_bytes(b"b0VIM 9.0" + bytes(4000))  # by itself not worth a step
            saved_by_vim(project / "README.md", f"vim {number}\n")
            watch.step("modified README.md")
            saved_by_rename(project / "src" / "main.py", f"other {number}\n")
            watch.step("modified src/main.py")
        assert watch.end() == 0
    assert [label for label, _ in entries(cli)] == ["README.md", "src/main.py"] * 5
    assert changes(cli) == {}


def test_K12_a_swap_file_alone_is_kept_with_the_next_step(cli: Cli, project: Path) -> None:
    with watching(project) as watch:
        (project / ".main.py.swp").write_bytes(b"b0VIM 9.0")
        (project / "#main.py#").write_text("unsaved words")
        (project / "real").touch()
        watch.step("created #main.py#, created .main.py.swp, created real")
        assert watch.end() == 0


@pytest.mark.skipif(not QUEUE.exists(), reason="no inotify here")
def test_K13_an_overflow_of_the_queue_loses_nothing(cli: Cli, project: Path) -> None:
    """The watch is held while more happens than the kernel keeps for it, at the end a folder whose event is lost."""
    number = int(QUEUE.read_text()) // 2 + 500  # each file is two events
    with watching(project) as watch:
        watch.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{watch.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="it to stand still")
        flood = project / "src"
        for n in range(number):
            fd = os.open(flood / f"n{n}", os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(fd, b"x")
            os.close(fd)
        (project / "late" / "deeper").mkdir(parents=True)
        (project / "late" / "deeper" / "file").write_text("first")
        (project / "README.md").unlink()
        watch.process.send_signal(signal.SIGCONT)
        watch.until("looking at everything again")
        watch.step("and")
        assert changes(cli) == {}
        (project / "late" / "deeper" / "file").write_text("second")
        watch.step("modified late/deeper/file")
        assert watch.end() == 0
    assert changes(cli) == {}
