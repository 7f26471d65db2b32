"""Around a run: a mail server on loopback and stand-ins for `sendmail` that hold what the run sends.

Programs find the server by the variables that are commonly read (SMTP_HOST, SMTP_PORT and the like) and the stand-ins
by PATH. One that names another server, or calls /usr/sbin/sendmail by its full name, does not come by here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager

from reprieve.errors import Refused
from reprieve.files.processes import RUN

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
    folder = tempfile.mkdtemp(prefix="reprieve-mail-")
    try:
        _put_stand_ins(folder, root)
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
    finally:
        shutil.rmtree(folder)


def _environment(folder: str, port: str) -> dict[str, str]:
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": f"{folder}{os.pathsep}{path}",
        **dict.fromkeys(_HOSTS, "127.0.0.1"),
        **dict.fromkeys(_PORTS, port),
        "SMTP_URL": f"smtp://127.0.0.1:{port}",
    }


def _put_stand_ins(folder: str, root: str) -> None:
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        # a shell would pass by what it can't execute, and find the real one
        raise Refused(
            f"mail can't be held: programs in {os.path.dirname(folder)} can't be executed; nothing was run",
            hints=["set TMPDIR to a folder where they can"],
        )
    for name in NAMES:
        words = [sys.executable, "-P", "-m", "reprieve.gateways.sendmail", root, name]
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        os.chmod(path, 0o700)
