"""Around a run: a mail server on loopback and stand-ins for `sendmail` that hold what the run sends.

Programs find the server by the variables that are commonly read (SMTP_HOST, SMTP_PORT and the like) and the stand-ins
by PATH. One that names another server, or calls /usr/sbin/sendmail by its full name, does not come by here.

The stand-ins are the workspace's and outlive the run: what it left behind still has their folder in its PATH, and would
find the real `sendmail` were they gone. The server's port is then closed, and nothing else is tried in its place.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import contextmanager

from reprieve.errors import Refused
from reprieve.files.processes import RUN
from reprieve.store.faults import failed
from reprieve.store.home import make_directory, open_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprieve.app.workspace import Workspace

NAMES = ("sendmail", "msmtp", "mail", "mailx")
_HOSTS = ("SMTP_HOST", "SMTP_SERVER", "MAIL_HOST", "MAIL_SERVER", "EMAIL_HOST")
_PORTS = ("SMTP_PORT", "MAIL_PORT", "EMAIL_PORT")


@contextmanager
def holding(ws: Workspace) -> Iterator[dict[str, str]]:
    """What is to be added to the environment of the run. Raises Refused if mail could not be held."""
    root = os.fsdecode(ws.root)
    folder = _put_stand_ins(ws, root)
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "reprieve.gateways.smtp_hold", root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, RUN: str(os.getpid())},
        start_new_session=True,  # Ctrl-C is for the command, which may go on
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        port = server.stdout.readline().strip().decode()
        if not port:
            raise Refused("mail can't be held: the local mail server did not start; nothing was run")
        yield _environment(folder, port)
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait()


def _environment(folder: str, port: str) -> dict[str, str]:
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": f"{folder}{os.pathsep}{path}",
        **dict.fromkeys(_HOSTS, "127.0.0.1"),
        **dict.fromkeys(_PORTS, port),
        "SMTP_URL": f"smtp://127.0.0.1:{port}",
    }


def _put_stand_ins(ws: Workspace, root: str) -> str:
    """The folder that they are in. Written anew for each run: the workspace, or our Python, may have moved."""
    home = open_home(ws.home)
    folder = home.file("stand-ins", ws.id)
    if os.pathsep in folder:
        raise Refused(
            f"mail can't be held: PATH can't name {folder}; nothing was run",
            hints=[f"set REPRIEVE_HOME to a folder without '{os.pathsep}' in its name"],
        )
    try:
        for path in (home.file("stand-ins"), folder):
            make_directory(path)
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            # a shell would pass by what it can't execute, and find the real one
            raise Refused(
                f"mail can't be held: programs in {home.path} can't be executed; nothing was run",
                hints=["set REPRIEVE_HOME to a folder where they can"],
            )
        with os.scandir(folder) as entries:
            # no program of somebody else is to come first in the PATH of a run
            strangers = [each.path for each in entries if each.name not in NAMES and not each.is_dir()]
        for path in strangers:
            os.unlink(path)
        for name in NAMES:
            words = [sys.executable, "-P", "-m", "reprieve.gateways.sendmail", root, name]
            text = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
            home.write(f"stand-ins/{ws.id}/{name}", text.encode(errors="surrogateescape"), durable=False, mode=0o700)
    except OSError as e:
        raise failed(e, home.path, "put the programs there that hold mail; nothing was run") from e
    return folder
