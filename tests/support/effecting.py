"""What is struck by the sweeps over effects: small programs that do one thing with a journal and a real server.

forward URL   an effect from its intent to its outcome: a charge, with the refund that reverses it
record URL    an effect that has happened already
command PATH  likewise, with a command that must not be run twice
sql PATH [WORD]   likewise, with a statement that must not be run twice (with a WORD: that may)
undo          the inverses of all that is open, as `compensate --execute --yes` runs them
hold, release URL, cancel, keep     of the newest effect
states        all effects, as JSON
"""

from __future__ import annotations

import http.client
import json
import os
from urllib.parse import urlsplit

from reprieve.app import effects, journals
from reprieve.app.finding import open_workspace
from reprieve.app.workspace import Workspace
from reprieve.effects.inverses import http_inverse
from reprieve.effects.journal import Journal
from reprieve.errors import ReprieveError
from reprieve.model.effect import EffectDraft


def main(argv: list[str]) -> int:
    with open_workspace(os.getcwd(), create=True) as ws, effects.journal_of(ws) as journal:
        try:
            return _DO[argv[0]](ws, journal, *argv[1:])
        except ReprieveError as e:
            print(json.dumps({"refused": e.code, "message": e.message}))
            return e.exit_code


def _post(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("POST", parts.path, body=b"{}")
    answer: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def forward(ws: Workspace, journal: Journal, url: str) -> int:
    place = journals.place(ws)
    begun = journal.begin(EffectDraft("http", "compensable", url, f"POST {url}", call="one"), place)
    answer = _post(url + "/charges")
    undo = {"method": "POST", "url": url + "/refunds", "json": {"charge": answer["id"]}}
    inverse = http_inverse(undo, forward=url, sign=journal.log.fingerprint)
    journal.finish(begun.id, "done", inverse=inverse, reply=answer)
    return 0


def record(ws: Workspace, journal: Journal, url: str) -> int:
    undo = {"method": "DELETE", "url": url + "/things/7", "is_gone_done": True}
    effects.record_http(ws, method="POST", url=url + "/things", undo=undo)
    return 0


def late(ws: Workspace, journal: Journal, url: str) -> int:
    """A planted bug: the effect leaves before its intent is written."""
    answer = _post(url + "/charges")
    journal.record(EffectDraft("http", "compensable", url, f"POST {url}"), journals.place(ws), reply=answer)
    return 0


def command(ws: Workspace, journal: Journal, path: str) -> int:
    effects.record_command(ws, ["mkdir", path], description="a command", cwd="/", resource=path)
    return 0


def sql(ws: Workspace, journal: Journal, path: str, word: str = "") -> int:
    back = ("UPDATE account SET balance = balance - 10 WHERE id = 1", (), 1)
    if word:
        back = ("UPDATE account SET balance = 100 WHERE id = 1 AND balance = 110", (), 1)
    effects.record_sql(ws, path, [back], description="a credit", is_idempotent=bool(word))
    return 0


def undo(ws: Workspace, journal: Journal) -> int:
    side = effects.compensate(ws, "base")
    if side is None:
        return 0
    with side:
        side.need_approval()
        side.carry_out()
    return 0


def hold(ws: Workspace, journal: Journal) -> int:
    journal.hold(EffectDraft("note", "holdable", "outbox", "a message"), journals.place(ws))
    return 0


def release(ws: Workspace, journal: Journal, url: str) -> int:
    (newest, *_) = journal.effects()
    journal.release(newest.id)
    _post(url + "/charges")
    journal.finish(newest.id, "done")
    return 0


def cancel(ws: Workspace, journal: Journal) -> int:
    (newest, *_) = journal.effects()
    journal.cancel(newest.id)
    return 0


def keep(ws: Workspace, journal: Journal) -> int:
    effects.keep(ws, None)
    return 0


def states(ws: Workspace, journal: Journal) -> int:
    journal.log.must_be_whole(ws.id)
    found = [
        {"state": e.state, "undo_state": e.undo_state, "kind": e.kind, "resource": e.resource}
        for e in journal.effects()
    ]
    print(json.dumps(found))
    return 0


def base(ws: Workspace, journal: Journal) -> int:
    ws.checkpoint("base")
    return 0


_DO = {f.__name__: f for f in (forward, late, record, command, sql, undo, hold, release, cancel, keep, states, base)}
