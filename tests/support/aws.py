"""The real aws program against a server that stands in for Amazon's."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder that is the home of a user of that server, and the environment that leads there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    (folder / ".aws").mkdir()
    (folder / ".aws" / "credentials").write_text("[default]\naws_access_key_id = x\naws_secret_access_key = y\n")
    (folder / ".aws" / "config").write_text(f"[default]\nregion = us-east-1\nendpoint_url = {url}\n")
    with open(folder / "moto.log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/moto-api/", timeout=5):
                break
            assert server.poll() is None, (folder / "moto.log").read_text()
            time.sleep(0.1)  # a real server starts
        yield folder, {"HOME": str(folder)}
    finally:
        server.terminate()
        server.wait(10)
