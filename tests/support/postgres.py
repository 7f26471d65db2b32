"""A PostgreSQL server of a test run's own: on a socket in a scratch folder, as a user without rights, ended with it."""

from __future__ import annotations

import getpass
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

_USER = "postgres"  # who runs the server if we are root, which PostgreSQL refuses to run as


class Server:
    """A running server. Its databases are made once and emptied for each test, which is far quicker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: set[str] = set()

    def url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={quote(str(self.folder), safe='')}"

    def make(self, name: str) -> Database:
        if name not in self._made:
            Database(self.url("postgres")).do(f"CREATE DATABASE {name}")
            self._made.add(name)
        db = Database(self.url(name))
        db.do("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        return db


class Database:
    """One database, and what a person does there in another terminal."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def name(self) -> str:
        return self.url.partition("?")[0].rpartition("/")[2]

    def do(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            return db.execute(query.encode()).fetchall()


@contextmanager
def serving() -> Iterator[Server]:
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="reprieve-pg-"))
    user = _USER if os.geteuid() == 0 else getpass.getuser()
    if os.geteuid() == 0:
        shutil.chown(folder, user)
    data = str(folder / "data")
    server = None
    try:
        _run(
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"], user, folder
        )
        # a socket and no port: nothing is taken from others, and nobody else gets in
        options = ("-c", "listen_addresses=", "-k", str(folder), "-c", "fsync=off")
        with (folder / "log").open("wb") as log:
            command = [str(programs / "postgres"), "-D", data, *options]
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **_as(user))
        _wait(folder, server)
        yield Server(folder)
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # "immediate": what it holds is thrown away with the folder
            server.wait(30)
        shutil.rmtree(folder)


def _programs() -> Path:
    """Where initdb and postgres are: distributions keep them out of PATH, one folder for each version."""
    found = shutil.which("initdb")
    # of a version without initdb only the client is installed
    places = [Path(p).parent for p in ([found] if found else sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")))]
    if not places:
        pytest.skip("postgres is not installed")
    return places[-1]


def _as(user: str) -> dict[str, object]:
    return {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}


def _run(command: list[object], user: str, folder: Path) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, cwd=folder, **_as(user))  # type: ignore[call-overload]


def _wait(folder: Path, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if server.poll() is not None:
            break
        try:
            psycopg.connect(Server(folder).url("postgres")).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.05)  # a real server starts
    pytest.fail((folder / "log").read_text())


@contextmanager
def losing_commits(server: Server) -> Iterator[int]:
    """A port that leads to the server: a COMMIT gets there, its answer does not come back."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket, seen: list[bytes], is_up: bool) -> None:
        try:
            while data := source.recv(65536):
                if is_up and b"COMMIT" in data:
                    seen.append(data)
                if not is_up and seen:
                    break
                sink.sendall(data)
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other direction has ended both

    def loop() -> None:
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            there.connect(str(server.folder / ".s.PGSQL.5432"))
            seen: list[bytes] = []
            pairs = ((client, there, seen, True), (there, client, seen, False))
            threads = [threading.Thread(target=pump, args=pair) for pair in pairs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            client.close()
            there.close()

    serving = threading.Thread(target=loop)
    serving.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        serving.join()
