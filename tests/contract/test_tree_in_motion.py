"""Trees that move while they are looked at, and changes that try not to be seen (F20 to F24, F27)."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Cli, age
from support.acts import (
    assert_tree,
    changes,
    checkpoint,
    command,
    git,
    measured,
    paths,
    rollback,
    running,
    script,
    size_of,
    wait_until,
)
from support.tree import fingerprint

LARGE_GB = float(os.environ.get("REPRIEVE_TEST_LARGE_GB", "0.5"))  # 20: the figure of the issue, some minutes


@pytest.mark.slow
def test_F20_a_large_dense_file_is_streamed_and_an_interrupt_costs_little(cli: Cli, project: Path, home: Path) -> None:
    """A dense file of half a gigabyte: interrupted half-way with exit 130, resumed in flat memory, kept once.

    REPRIEVE_TEST_LARGE_GB=20 makes it twenty.
    """
    blocks = int(LARGE_GB * 256)
    large = project / "large"
    block = os.urandom(4 << 20)
    with large.open("wb") as file:
        for i in range(blocks):
            file.write(i.to_bytes(8, "big") + block[8:])
    for i in range(50):
        (project / f"{i}.bin").write_bytes(os.urandom(1 << 20))
    try:
        process = subprocess.Popen(
            command("checkpoint"),
            cwd=project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        wait_until(lambda: process.poll() is not None or (home.exists() and size_of(home) > 30 << 20), what="30 MB")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
        made = measured("checkpoint", "--json", cwd=project)
        assert made.result.code == 0, made.result
        assert made.peak_bytes < 150 << 20
        assert size_of(home) < 1.3 * (blocks * (4 << 20) + (50 << 20))
        large.unlink()
        back = measured("rollback", "--json", cwd=project)
        assert back.result.code == 0, back.result
        assert back.peak_bytes < 150 << 20
        with large.open("rb") as file:
            for i in range(blocks):
                assert file.read(4 << 20) == i.to_bytes(8, "big") + block[8:]
            assert file.read() == b""
    finally:
        large.unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)


REWRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(fd).st_size
versions = [bytes([k]) * size for k in range(1, 9)]
print("ready", flush=True)
while True:
    for data in versions:
        os.pwrite(fd, data, 0)
"""

GROWER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print("ready", flush=True)
i = 0
while True:
    data = b"".join(b"%015d\\n" % n for n in range(i, i + 256))
    os.pwrite(fd, data, i * 16)  # a page: what crosses one is seen in part by who looks meanwhile
    i += 256
    if i >= 200_000:
        os.ftruncate(fd, 0)
        i = 0
"""


def test_F21_a_file_that_is_rewritten_while_it_is_read(cli: Cli, project: Path) -> None:
    """What a checkpoint holds of it is one version as a whole, or the file is named as unstable; never a mixture."""
    busy = project / "busy"
    busy.write_bytes(b"\x01" * (16 << 20))
    taken = []
    with script(REWRITER, busy):
        for _ in range(8):
            made = cli("checkpoint", "--json", check=False, timeout=60)
            assert made.code in (0, 1), made
            taken.append((made.json["checkpoint"]["id"], paths(made.json["checkpoint"]["gaps"])))
    for id, gaps in taken:
        if "busy" in gaps:
            continue
        cli("rollback", id)
        data = busy.read_bytes()
        assert len(data) == 16 << 20
        assert data == data[:1] * len(data), "a mixture of two versions, and not named"


def test_F21_a_file_that_grows_and_shrinks_while_it_is_read(cli: Cli, project: Path) -> None:
    """Reading it ends, and what was read is something that was there: whole lines from the beginning."""
    busy = project / "busy.log"
    taken = []
    with script(GROWER, busy):
        for _ in range(8):
            made = cli("checkpoint", "--json", check=False, timeout=60)
            assert made.code in (0, 1), made
            taken.append((made.json["checkpoint"]["id"], paths(made.json["checkpoint"]["gaps"])))
    for id, gaps in taken:
        if "busy.log" in gaps:
            continue
        cli("rollback", id)
        lines = busy.read_bytes().split(b"\n")
        assert lines.pop() == b""
        assert lines == [b"%015d" % n for n in range(len(lines))], "not a state that the file ever had, and not named"


def test_F21_what_is_unstable_is_not_deleted(cli: Cli, project: Path) -> None:
    """A rollback leaves a file alone that no checkpoint could hold, or restores a state that it had."""
    busy = project / "busy"
    busy.write_bytes(b"\x01" * (16 << 20))
    with script(REWRITER, busy):
        cli("checkpoint", check=False)
        (project / "README.md").write_text("wrecked\n")
    cli("rollback", check=False)
    assert busy.stat().st_size == 16 << 20
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"


def rewrite_unseen(path: Path, data: bytes) -> None:
    """Other bytes of the same length, with the old mtime put back."""
    st = path.stat()
    assert len(data) == st.st_size
    path.write_bytes(data)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def test_F22_a_writer_that_puts_size_and_mtime_back_is_found(cli: Cli, project: Path) -> None:
    """`touch -r` and utime hide nothing."""
    before = fingerprint(project)
    checkpoint(cli)
    rewrite_unseen(project / "src" / "util.py", b"ANSWER = 41\n")
    assert changes(cli) == {"src/util.py": "modified"}
    rollback(cli)
    assert_tree(project, before)
    rewrite_unseen(project / "data.bin", bytes(4096))
    checkpoint(cli)
    rollback(cli, "~1")
    assert_tree(project, before)


def test_F23_a_rewrite_in_the_same_tick_as_the_checkpoint_is_found(cli: Cli, project: Path) -> None:
    """Same size, right before and right after a checkpoint, twelve times: each version is captured as it was."""
    path = project / "racy"
    ids = []
    for i in range(12):
        path.write_bytes(b"%06d" % i)
        ids.append(checkpoint(cli))
        path.write_bytes(b"-%05d" % i)
        if i % 5 == 0:
            assert changes(cli) == {"racy": "modified"}
    for i in (0, 5, 11):
        rollback(cli, ids[i])
        assert path.read_bytes() == b"%06d" % i


def test_F23_a_name_made_in_the_same_tick_is_found(cli: Cli, project: Path) -> None:
    """A directory that changes right after it was listed is listed again."""
    for i in range(10):
        checkpoint(cli)
        (project / "empty" / f"{i}").write_text("")
        assert changes(cli) == {f"empty/{i}": "created"}


def test_F23_times_of_whole_seconds_are_not_trusted_at_once(cli: Cli, project: Path) -> None:
    """On file systems that keep seconds only, everything within the last seconds is compared by its content."""
    path = project / "coarse"
    path.write_bytes(b"one")
    now = path.stat().st_mtime_ns // 10**9 * 10**9
    os.utime(path, ns=(now, now))
    checkpoint(cli)
    path.write_bytes(b"two")
    os.utime(path, ns=(now, now))
    assert changes(cli) == {"coarse": "modified"}


def test_F24_replaced_files_with_equal_times_are_read_again(cli: Cli, project: Path) -> None:
    """Same size, same mtime, another inode: what cp -p, rsync -t or an atomic save put there is found."""
    before = fingerprint(project)
    checkpoint(cli)
    for name, data in (("src/util.py", b"ANSWER = 24\n"), ("no-newline.txt", b"the last line has no END")):
        path = project / name
        st = path.stat()
        assert st.st_size == len(data)
        other = path.with_name("other")
        other.write_bytes(data)
        os.utime(other, ns=(st.st_atime_ns, st.st_mtime_ns))
        other.rename(path)
    assert changes(cli) == {"src/util.py": "modified", "no-newline.txt": "modified"}
    rollback(cli)
    assert_tree(project, before, ignore=("dir_mtime_ns",))


def test_F24_a_git_checkout_back_and_forth_is_followed(cli: Cli, project: Path) -> None:
    """Branches that git switches between leave new inodes, and each state restores exactly."""
    git("init", "-q", cwd=project)
    git("add", "-A", cwd=project)
    git("commit", "-q", "-m", "one", cwd=project)
    git("checkout", "-q", "-b", "side", cwd=project)
    (project / "src" / "util.py").write_text("ANSWER = 77\n")
    git("commit", "-q", "-am", "two", cwd=project)
    age(project / "src")
    first_tree, first = fingerprint(project), checkpoint(cli)
    git("checkout", "-q", "main", cwd=project)
    age(project / "src")
    second_tree, second = fingerprint(project), checkpoint(cli)
    assert (project / "src" / "util.py").read_text() == "ANSWER = 42\n"
    rollback(cli, first)
    assert_tree(project, first_tree)
    rollback(cli, second)
    assert_tree(project, second_tree)


def test_F27_running_programs_do_not_stand_in_the_way(cli: Cli, project: Path) -> None:
    """A program that is being executed is replaced by rename: no ETXTBSY, and the process runs on."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, project / "program")
    before = fingerprint(project)
    checkpoint(cli)
    with (project / "program").open("ab") as file:
        file.write(b"\0" * 8)
    with running(project / "program", "60") as process:
        wait_until(lambda: os.path.exists(f"/proc/{process.pid}/exe"), what="the program")
        rollback(cli)
        assert_tree(project, before)
        assert process.poll() is None


def test_F27_open_and_mapped_files_keep_what_they_had(cli: Cli, project: Path) -> None:
    """Whoever has the file open or mapped keeps the old bytes; the name has the restored ones."""
    good = (project / "data.bin").read_bytes()
    checkpoint(cli)
    (project / "data.bin").write_bytes(b"B" * 4096)
    with (project / "data.bin").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as view:
        rollback(cli)
        assert view[:4] == b"BBBB"
        view[:4] = b"late"
        view.flush()
        assert (project / "data.bin").read_bytes() == good


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in a file system in memory: nothing is ever written back there, so a mapped page stays writable."""
    if not any(line.split()[1:3] == ["/dev/shm", "tmpfs"] for line in Path("/proc/mounts").read_text().splitlines()):
        pytest.skip("no file system in memory at /dev/shm")
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def write_unseen(path: Path, view: mmap.mmap, data: bytes) -> None:
    before = path.stat()
    view[: len(data)] = data
    after = path.stat()
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns), "it showed"


@pytest.mark.parametrize("size", [4096, 3 << 20], ids=["small", "large"])
def test_F27_what_a_mapping_writes_without_moving_the_times_is_captured(cli: Cli, memory: Path, size: int) -> None:
    """Only the first write through a mapping moves a file's times: each later one is found all the same."""
    path = memory / "mapped"
    path.write_bytes(b"o" * size)
    time.sleep(0.1)  # so that its times are trusted
    checkpoint(cli, "one", cwd=memory)
    with mapped(path) as view:
        view[:6] = b"FIRST!"
        time.sleep(0.1)
        checkpoint(cli, cwd=memory)
        write_unseen(path, view, b"SECOND")
        second = checkpoint(cli, cwd=memory)
        write_unseen(path, view, b"THIRD!")
        rollback(cli, "one", cwd=memory)
        assert path.read_bytes() == b"o" * size
        cli("redo", cwd=memory)
        assert path.read_bytes()[:6] == b"THIRD!"
    rollback(cli, second, cwd=memory)
    assert path.read_bytes()[:6] == b"SECOND"


def test_F27_a_mapped_file_is_returned_if_it_is_not_what_was_kept(cli: Cli, memory: Path) -> None:
    """A page that was read before it is written shows nothing at all there: it is seen when the file has been moved."""
    path = memory / "mapped"
    path.write_bytes(b"one---")
    checkpoint(cli, "one", cwd=memory)
    path.write_bytes(b"two---")
    time.sleep(0.1)
    checkpoint(cli, cwd=memory)
    with mapped(path) as view:
        assert view[:] == b"two---"
        write_unseen(path, view, b"PERSON")
        result = cli("rollback", "one", "--yes", cwd=memory, check=False)
        assert "still being written by a program; left as it is" in result.out + result.err, result
        assert path.read_bytes() == b"PERSON"
