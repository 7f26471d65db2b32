"""The resident helper does for a process only what that process could do itself, and only what it asked for itself."""

from __future__ import annotations

import array
import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import helper
from support.helper import Installed, is_gone, until

LAUNCH = [sys.executable, str(Path(__file__).parents[1] / "support" / "launch.py")]
NO_NEW_PRIVS = "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
# A ruleset that forbids to make FIFOs and nothing else; with CAP_SYS_ADMIN it needs no NoNewPrivs.
LANDLOCK = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
rules = (ctypes.c_uint64 * 1)(1 << 10)
fd = libc.syscall(444, ctypes.byref(rules), 8, 0)
if fd < 0 or libc.syscall(446, fd, 0):
    sys.exit(77)
os.close(fd)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def installed(tmp_path: Path, project: Path) -> Iterator[Installed]:
    one = Installed(tmp_path / "installed")
    one.warm(project)
    yield one
    one.close()


def is_done_by_python(installed: Installed, project: Path, before: list[str]) -> bool:
    """Whether a command that is started like this is done by a Python of its own, and well."""
    was = installed.directs
    done = installed.run("status", cwd=project, before=before)
    if done.returncode == 77:
        pytest.skip("this kernel does not have it")
    assert done.returncode == 0, done.stderr
    return installed.directs == was + 1


def test_one_that_gave_up_new_privileges_is_not_served(installed: Installed, project: Path) -> None:
    assert not is_done_by_python(installed, project, [sys.executable, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"])  # fmt: skip # noqa: E501
    assert is_done_by_python(installed, project, [sys.executable, "-c", NO_NEW_PRIVS])


ASK_AS_A_HOOK = """
import json, os, socket, struct, sys
folder, payload = sys.argv[1].encode(), json.dumps({"tool_name": "Read", "hook_event_name": "PreToolUse"}).encode()
words = [b"hook", b"claude-code", b"PreToolUse"]
variables = [b"%s=%s" % pair for pair in os.environb.items() if not pair[0].startswith(b"LC_")]
strings = b"".join(part + bytes(1) for part in (folder, b"reprieve", *words, *variables))
size = 20 + len(strings) + len(payload)
one = socket.socket(socket.AF_UNIX)
one.connect(os.path.join(os.environ["REPRIEVE_HOME"], "hooks"))
one.sendall(struct.pack("=IIIII", 0x31515052, size, len(words), len(variables), len(payload)) + strings + payload)
print(one.recv(1).decode())
"""


def test_a_hook_of_one_that_gave_up_new_privileges_is_not_answered_by_the_helper(installed: Installed) -> None:
    """Not even if it does not go by way of the launcher, which would not ask."""
    ask = [sys.executable, "-c", ASK_AS_A_HOOK, str(installed.bin)]
    for before, answer in (([], "A"), ([sys.executable, "-c", NO_NEW_PRIVS], "H")):
        done = subprocess.run([*before, *ask], env=installed.env, capture_output=True, text=True, timeout=20)
        assert (done.stdout.strip(), done.stderr) == (answer, "")


def test_one_that_gave_up_new_privileges_starts_none(tmp_path: Path, project: Path) -> None:
    """It would serve others that are confined in another way."""
    one = Installed(tmp_path / "own")
    assert one.run("checkpoint", cwd=project, before=[sys.executable, "-c", NO_NEW_PRIVS]).returncode == 0
    assert not helper.wait_for_helper(one.home)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_one_with_fewer_capabilities_is_not_served(installed: Installed, project: Path) -> None:
    assert is_done_by_python(installed, project, [*LAUNCH, json.dumps({"powerless": 1})])


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("kind", ["--mount", "--net", "--uts", "--ipc", "--cgroup"])
def test_one_in_another_namespace_is_not_served(installed: Installed, project: Path, kind: str) -> None:
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    assert is_done_by_python(installed, project, ["unshare", kind])


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_one_that_landlock_confines_is_not_served(installed: Installed, project: Path) -> None:
    """/proc does not tell; but from the inside of such a confinement nobody outside can be looked at."""
    assert is_done_by_python(installed, project, [sys.executable, "-c", LANDLOCK])


@pytest.mark.parametrize("words", [["nice", "-n", "5"], ["taskset", "-c", "0"]])
def test_one_that_is_held_back_is_not_served(installed: Installed, project: Path, words: list[str]) -> None:
    if not shutil.which(words[0]) or (words[0] == "taskset" and os.cpu_count() == 1):
        pytest.skip(f"{words[0]} makes no difference here")
    assert is_done_by_python(installed, project, words)


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o710])
def test_a_store_that_others_can_enter_is_not_asked(installed: Installed, project: Path, mode: int) -> None:
    installed.home.chmod(mode)
    done = installed.run("status", cwd=project)
    installed.home.chmod(0o700)
    assert done.returncode == 3 and b"open to other users" in done.stderr
    assert installed.directs == 2


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_store_of_another_user_is_not_asked(installed: Installed, project: Path) -> None:
    os.chown(installed.home, 65534, 65534)
    done = installed.run("status", cwd=project)
    os.chown(installed.home, 0, 0)
    assert done.returncode == 3 and b"belongs to another user" in done.stderr
    assert installed.directs == 2


def test_a_store_behind_a_link_is_not_asked(installed: Installed, project: Path) -> None:
    link = installed.home.parent / "link"
    link.symlink_to(installed.home)
    done = installed.run("status", cwd=project, env={"REPRIEVE_HOME": str(link)})
    assert done.returncode == 3 and installed.directs == 2


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_server_of_another_user_gets_nothing(installed: Installed, project: Path) -> None:
    installed.close()
    script = (
        "import os, socket, sys\nos.chdir(sys.argv[1])\none = socket.socket(socket.AF_UNIX)\none.bind('helper')\n"
        "os.setuid(65534)\none.listen()\nprint('ready', flush=True)\n"
        "other, _ = one.accept()\nprint(other.recv(10), flush=True)\n"
    )
    argv = [sys.executable, "-c", script, installed.home]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as fake:
        assert fake.stdout is not None and fake.stdout.readline() == "ready\n"
        assert installed.run("status", cwd=project).returncode == 0
        assert fake.stdout.readline() == "b''\n"
    assert installed.directs == 2
    (installed.home / "helper").unlink()


def test_the_socket_is_its_owners_alone(installed: Installed, project: Path) -> None:
    assert (installed.home / "helper").stat().st_mode & 0o777 == 0o600
    assert not list((installed.home / "tmp").iterdir())


# Talking to it without the launcher


class Caller:
    """Speaks the launcher's language, and can stop or lie anywhere."""

    def __init__(self, installed: Installed, project: Path) -> None:
        self.installed, self.project = installed, project
        self.one = socket.socket(socket.AF_UNIX)
        self.one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.one.settimeout(20)
        self.one.connect(str(installed.home / "helper"))
        assert self.one.recv(1) == b"H"

    def request(self, *words: str, folder: str = "", protocol: int = 0x31485052) -> bytes:
        variables = [f"{name}={value}" for name, value in self.installed.env.items()]
        strings = [folder or str(self.installed.bin), "reprieve", *words, *variables]
        data = "".join(f"{text}\0" for text in strings).encode()
        return struct.pack("=IIII", protocol, 16 + len(data), len(words), len(variables)) + data

    def send(self, data: bytes, *, descriptors: int = 4) -> None:
        null, here = os.open(os.devnull, os.O_RDWR), os.open(self.project, os.O_PATH)
        fds = array.array("i", [null, null, null, here][:descriptors])
        self.one.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        os.close(null)
        os.close(here)

    def in_a_fork(self, what: str) -> None:
        """Have another process send something over this connection."""
        script = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]));" + what
        argv = [sys.executable, "-c", script, str(self.one.fileno())]
        subprocess.run(argv, pass_fds=[self.one.fileno()], check=True)


@pytest.fixture
def caller(installed: Installed, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    if ctypes.CDLL(None).prctl(39, 0, 0, 0, 0):
        pytest.skip("the tests themselves run without new privileges")
    found = Caller(installed, project)
    yield found
    found.one.close()


def labels(installed: Installed, project: Path) -> bytes:
    until(lambda: not installed.children(installed.pid))
    return installed.run("log", cwd=project).stdout


def test_with_go_it_is_done(caller: Caller, installed: Installed, project: Path) -> None:
    """So that the tests below say something."""
    caller.send(caller.request("checkpoint", "wanted"))
    assert caller.one.recv(5)[:1] == b"P"
    caller.one.send(b"G")
    assert caller.one.recv(5) == b"X\0\0\0\0"
    assert b"wanted" in labels(installed, project)


@pytest.mark.parametrize("last", [b"", b"N"])
def test_without_go_nothing_is_done(caller: Caller, installed: Installed, project: Path, last: bytes) -> None:
    caller.send(caller.request("checkpoint", "unwanted"))
    assert caller.one.recv(5)[:1] == b"P"
    caller.one.send(last)
    caller.one.close()
    assert b"unwanted" not in labels(installed, project)


def test_the_go_of_another_process_does_not_count(caller: Caller, installed: Installed, project: Path) -> None:
    """A number that was looked at could belong to someone else by now; whoever says go must have it."""
    caller.send(caller.request("checkpoint", "unwanted"))
    assert caller.one.recv(5)[:1] == b"P"
    caller.in_a_fork("s.send(b'G')")
    assert caller.one.recv(5) == b""
    assert b"unwanted" not in labels(installed, project)


def test_the_request_of_another_process_is_refused(caller: Caller) -> None:
    caller.in_a_fork(f"s.send({caller.request('status')!r})")
    assert caller.one.recv(5) == b"D"


@pytest.mark.parametrize(
    "data", [b"x", b"\0" * 16, b"\xff" * 100, struct.pack("=IIII", 0x31485052, 1 << 31, 0, 0)], ids=repr
)
def test_nonsense_is_refused(caller: Caller, installed: Installed, project: Path, data: bytes) -> None:
    pid = installed.pid
    caller.send(data)
    assert caller.one.recv(5) == b"D"
    assert not is_gone(pid) and installed.run("status", cwd=project).returncode == 0
    assert installed.directs == 1


def test_another_protocol_installation_or_too_few_descriptors_are_refused(caller: Caller, installed: Installed) -> None:
    caller.send(caller.request("status", protocol=1))
    assert caller.one.recv(5) == b"D"
    for options, descriptors in (({"folder": "/elsewhere"}, 4), ({}, 3), ({}, 0)):
        other = Caller(installed, caller.project)
        other.send(other.request("status", **options), descriptors=descriptors)  # type: ignore[arg-type]
        assert other.one.recv(5) == b"D"
        other.one.close()


def test_a_variable_that_is_there_twice_is_refused(caller: Caller) -> None:
    data = caller.request("status").replace(b"LANG=C.UTF-8", b"HOME=/strange")
    length = struct.pack("=I", len(data))
    caller.send(data[:4] + length + data[8:])
    assert caller.one.recv(5) == b"D"
