"""A hundred thousand effects: a plan streams, and memory stays flat."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from reprieve.app.journals import open_journal
from reprieve.app.workspace import Workspace
from reprieve.effects.journal import Place
from reprieve.model.effect import EffectDraft

MANY = 100_000


def fill(ws: Workspace) -> None:
    """Rows as the journal writes them, in one go: one by one they would take a disk minutes."""
    journal = open_journal(ws)
    inverse: dict[str, object] = {"kind": "command", "steps": [{"argv": ["/bin/true", "x" * 50]}], "cwd": "/"}
    model = journal.record(EffectDraft("command", "compensable", "thing/?", "thing ?", inverse=inverse), Place(at=1))
    bodies = [(row.kind, row.body) for row in journal.log.rows_of(ws.id, model.id)]
    rows, index, prev = [], [], journal.log.rows_of(ws.id, model.id)[-1].mac
    for number in range(1, MANY):
        id, first = f"e{number:09}", 1 + 2 * number
        for offset, (kind, body) in enumerate(bodies):
            text = body.replace("?", str(number))
            mac = journal.log._row_mac(prev, ws.id, first + offset, id, kind, text)
            rows.append((ws.id, first + offset, id, kind, text, prev, mac))
            prev = mac
        index.append((ws.id, first, id, 1, "", f"thing/{number}", "", "", "done", "", 1))
    with journal.log.transaction():
        journal.log.db.execute_many("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        journal.log.db.execute_many(f"INSERT INTO effects VALUES ({', '.join('?' * 11)})", index)
    journal.log.must_be_whole(ws.id)
    journal.log.close()


def memory(pid: int) -> int:
    """The most that a process held so far; its resource usage would count what this one held when it started it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    held = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(held[0]) * 1024 if held else 0


def test_bad_case_50_E13_a_plan_over_100_000_effects_streams_and_stays_small(ws: Workspace) -> None:
    fill(ws)
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "reprieve", "compensate", "base"],
        cwd=os.fsdecode(ws.root),
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    until_first = time.monotonic() - started
    rest, most = 1, 0
    while lines := child.stdout.readlines(1 << 20):
        rest += sum(line.startswith(b"  ~ undo") for line in lines)
        most = max(most, memory(child.pid))
    in_all = time.monotonic() - started
    status = child.wait()
    child.stdout.close()
    assert b"thing 99999" in first and status == 0
    assert rest == MANY
    assert 0 < most < 200e6, most
    # within a second on a machine that has nothing else to do; on any, long before the last
    assert until_first < max(1.0, in_all / 10), (until_first, in_all)
