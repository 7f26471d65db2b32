"""Writers of HTTP calls, killed at any instant: what the server saw is in the journal, and comes undone once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reprieve.app.finding import open_workspace
from reprieve.app.journals import open_journal
from support.shop import open_shop

ROUNDS = 200
WRITERS = 3

# Loads everything once and forks the writers: 600 of them would else spend their lives importing.
WRITE = """
import http.client, json, os, random, signal, sys, time
from reprieve.gateways import python_http
root, host, rounds, writers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
python_http.install(root)
chance = random.Random(7)

def write(name):
    wire = http.client.HTTPConnection(host)
    for n in range(1000):
        body = json.dumps({"id": f"{name}-{n}", "n": n})
        wire.request("POST", "/items", body, {"Content-Type": "application/json"})
        wire.getresponse().read()
        os.write(told, b".")


hears, told = os.pipe()
for turn in range(rounds):
    children = []
    for writer in range(writers):
        pid = os.fork()
        if pid == 0:
            try:
                write(f"r{turn}w{writer}")
            finally:
                os._exit(1)
        children.append(pid)
    for _ in range(chance.randint(1, 2)):  # until so many calls are through, and a moment more
        os.read(hears, 1)
    time.sleep(chance.uniform(0, 0.02))
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""

UNDO = """
import os, random, signal, sys, time
from reprieve.app.finding import open_workspace
import reprieve.app.effects, reprieve.effects.http, reprieve.effects.command, json, http.client
root, kills = sys.argv[1], int(sys.argv[2])
chance = random.Random(11)
for turn in range(kills + 1):
    pid = os.fork()
    if pid == 0:
        side = reprieve.app.effects.compensate(open_workspace(root), "base")
        side.carry_out()
        # of what was never answered and is not there nobody knows whether it happened: a person is told
        os._exit(0 if {o.state for o in side.outcomes} <= {"undone", "manual"} else 1)
    if turn < kills:
        time.sleep(chance.uniform(0.3, 1.5))
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(code)
"""


def run(script: str, *args: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, *args], capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_bad_case_1_2_E01_E02_what_a_server_saw_of_killed_writers_has_its_row_and_is_undone_once(
    project: Path, home: Path
) -> None:
    with open_shop() as shop, open_workspace(str(project), create=True) as ws:
        ws.checkpoint("base")
        run(WRITE, str(project), shop.url.removeprefix("http://"), str(ROUNDS), str(WRITERS))
        saw = {f"{shop.url}{path}" for path in shop.things}
        assert Counter(shop.done).total() == len(saw) >= ROUNDS
        journal = open_journal(ws)
        rows = {effect.resource: effect.state for effect in journal.effects()}
        assert saw <= set(rows), "the server saw what the journal does not know"
        assert set(rows.values()) <= {"done", "unknown"}
        assert all(url in saw for url, state in rows.items() if state == "done")
        assert list(journal.log.verify(ws.id)) == []
        shop.seen.clear()
        shop.done.clear()
        run(UNDO, str(project), "8")
        assert shop.things == {}
        assert set(Counter(shop.done).values()) == {1} and len(shop.done) == len(saw)
        left = {e.resource for e in journal.effects() if (e.undo_state or e.state) not in ("undone", "refused")}
        assert left.isdisjoint(saw), "what the server saw was left to a person"
        shop.seen.clear()
        run(UNDO, str(project), "0")
        assert shop.changes() == []
        journal.log.close()
