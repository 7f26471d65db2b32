"""A toy engine with a `main`, to test the harness itself: puts files into a store, each with a row.

    toy put STORE NAME...     content is made from the name; prints "ack NAME" when it is durable
    toy check STORE           every row's blob is there and whole
    toy die, toy hang         of SIGKILL; for a minute

VARIANT (environment TOY): good; inplace (blob written at its final name, "there" means done); rowfirst (row before
blob); noloop (a short write is not continued).
"""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import sys
import time


def main(argv: list[str]) -> int:
    if argv[0] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if argv[0] == "hang":
        time.sleep(60)
    command, root, *names = argv
    os.makedirs(os.path.join(root, "objects"), exist_ok=True)
    db = sqlite3.connect(os.path.join(root, "rows.db"), isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS row (name TEXT PRIMARY KEY, sha TEXT NOT NULL)")
    if command == "check":
        return _check(root, db)
    variant = os.environ.get("TOY", "good")
    for name in names:
        data = f"content of {name} ".encode() * 1000
        sha = hashlib.sha256(data).hexdigest()
        if variant == "rowfirst":
            db.execute("INSERT OR REPLACE INTO row VALUES (?, ?)", (name, sha))
        _put(os.path.join(root, "objects"), sha, data, variant)
        if variant != "rowfirst":
            db.execute("INSERT OR REPLACE INTO row VALUES (?, ?)", (name, sha))
        os.write(1, f"ack {name}\n".encode())
    return 0


def _put(objects: str, sha: str, data: bytes, variant: str) -> None:
    final = os.path.join(objects, sha)
    if os.path.exists(final):
        return
    path = final if variant == "inplace" else f"{final}.{os.getpid()}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    rest = memoryview(data)
    while rest:
        size = min(4096, len(rest))
        wrote = os.write(fd, rest[:size])
        rest = rest[size if variant == "noloop" else wrote :]
    os.fsync(fd)
    os.close(fd)
    if path != final:
        os.rename(path, final)
        fd = os.open(objects, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def _check(root: str, db: sqlite3.Connection) -> int:
    bad = 0
    for name, sha in db.execute("SELECT name, sha FROM row"):
        try:
            with open(os.path.join(root, "objects", sha), "rb") as file:
                whole = hashlib.sha256(file.read()).hexdigest() == sha
        except FileNotFoundError:
            whole = False
        print(f"{name} {'whole' if whole else 'torn'}")
        bad += not whole
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
