"""AWS on loopback: one process for each account, since servers in one process share what they hold."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def an_aws() -> Iterator[str]:
    """The address of an AWS of its own, while it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:  # it says when it listens
                if "Running on" in line:
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()
