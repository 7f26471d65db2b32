"""Stories about what lies outside of the folder: tracked paths, effects, held mail and the states of agents."""

from __future__ import annotations

import json
import sqlite3
import sys

from golden.stories import story
from golden.world import World
from support.api import Api, serving

POST = """
import json, sys, urllib.request
def call(method, path, body=None):
    request = urllib.request.Request({url!r} + path, method=method, data=json.dumps(body).encode() if body else None)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
"""


@story()
def tracked_paths_go_back_with_the_folder(w: World) -> None:
    w.write("../outside/settings", "colour = red\n")
    w.write("../outside/folder/inner", "inner\n")
    w.project()
    w.ok("track", str(w.base / "outside" / "settings"), str(w.base / "outside" / "folder"))
    w.checkpoint("tracked")
    w.run(
        "agent",
        "echo blue > ../outside/settings; rm ../outside/folder/inner; echo x > ../outside/folder/new; echo x > x",
    )
    w.ask("status", "--since", "tracked")
    w.ask("rollback", "tracked", "--dry-run")
    w.ask("rollback", "tracked", "--yes")
    w.ask("redo")


@story()
def a_persons_edit_of_a_tracked_path_stays(w: World) -> None:
    w.write("../outside/settings", "one\ntwo\nthree\nfour\nfive\n")
    w.project()
    w.ok("track", str(w.base / "outside" / "settings"))
    w.checkpoint("tracked")
    w.run("agent", w.line(1, "agent", "../outside/settings"))
    w.sh(w.line(5, "mine", "../outside/settings"))
    w.ask("rollback", "tracked", "--yes")


@story()
def undo_of_a_run_that_changed_a_tracked_path(w: World) -> None:
    w.write("../outside/settings", "one\n")
    w.project()
    w.ok("track", str(w.base / "outside" / "settings"))
    w.checkpoint("tracked")
    w.run("one", "echo two >> ../outside/settings")
    w.run("two", "echo x > x")
    w.ask("undo", "step:one", "--yes")


def two_things(w: World, api: Api) -> None:
    """An agent made one thing, changed another and wrote a file."""
    w.names[api.url] = "<api>"
    api.things["old"] = {"name": "old", "id": "old"}
    w.project()
    undo = "{'method': 'DELETE', 'url': URL + '/things/{response.id}'}"
    restore = "{'method': 'PUT', 'url': URL + '/things/old', 'json': {'name': 'old'}}"
    w.python(
        "agent",
        POST.format(url=api.url)
        + f"""
import reprieve
URL = {api.url!r}
with reprieve.open(".") as ws:
    answer = call("POST", "/things", {{"name": "one"}})
    ws.record_http("POST", URL + "/things", undo={undo}, response=answer)
    call("PUT", "/things/old", {{"name": "changed"}})
    ws.record_http("PUT", URL + "/things/old", undo={restore})
open("README.md", "w").write("changed\\n")
""",
    )


@story()
def http_calls_are_undone_newest_first(w: World) -> None:
    with serving() as api:
        two_things(w, api)
        w.ask("effects")
        w.ask("status", "--since", "base")
        w.ask("rollback", "base", "--dry-run")
        w.ask("rollback", "base", "--yes")
        w.ask("effects")
        w.note("things", api.things)
        w.note("requests", api.done)
        w.ask("rollback", "base", "--yes")
        w.note("requests", api.done)


@story()
def files_alone_leave_effects_standing(w: World) -> None:
    with serving() as api:
        two_things(w, api)
        w.ask("rollback", "base", "--files", "--yes")
        w.note("things", sorted(api.things))
        w.ask("effects", "--pending")


@story()
def effects_alone_leave_files_standing(w: World) -> None:
    with serving() as api:
        two_things(w, api)
        w.ask("rollback", "base", "--effects", "--dry-run")
        w.ask("rollback", "base", "--effects", "--yes")
        w.note("things", api.things)


@story(known_defect="files go back and effects don't, where the contract refuses all of it")
def effects_without_a_yes_are_refused(w: World) -> None:
    with serving() as api:
        two_things(w, api)
        w.ask("rollback", "base")
        w.note("things", sorted(api.things))


@story()
def compensate_runs_the_inverses(w: World) -> None:
    with serving() as api:
        two_things(w, api)
        w.ask("compensate", "base", "--execute", "--yes")
        w.note("things", api.things)


@story()
def a_run_is_undone_with_its_http_calls(w: World) -> None:
    with serving() as api:
        two_things(w, api)
        w.run("later", "echo later > later.txt")
        w.ask("undo", "step:agent", "--yes")
        w.note("things", api.things)


@story()
def an_http_undo_that_is_refused_is_reported(w: World) -> None:
    with serving() as api:
        w.names[api.url] = "<api>"
        w.project()
        url = f"{api.url}/things/7"
        refused = f"{api.url}/answers/409"
        more = ["--undo-method", "POST", "--undo-url", refused]
        w.run("agent", f"reprieve record http --method POST --url {url} {' '.join(more)}; echo x >> README.md")
        w.ask("rollback", "base", "--yes")
        w.ask("effects")


@story()
def recorded_http_of_a_python_program(w: World) -> None:
    with serving() as api:
        w.names[api.url] = "<api>"
        w.project()
        w.python("agent", POST.format(url=api.url) + 'call("POST", "/things", {"name": "one"})', "--record-http")
        w.ask("effects")
        w.ask("rollback", "base", "--yes")
        w.note("things", api.things)


def accounts(w: World) -> sqlite3.Connection:
    """A database outside of the folder that an agent changed, with the statement that reverses it."""
    path = w.base / "accounts.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE account (id INTEGER, balance INTEGER)")
    db.execute("INSERT INTO account VALUES (1, 100)")
    db.commit()
    w.project()
    back = "UPDATE account SET balance = 100 WHERE id = 1 AND balance = 110"
    w.python(
        "agent",
        f"""
import reprieve, sqlite3
db = sqlite3.connect({str(path)!r})
db.execute("UPDATE account SET balance = 110 WHERE id = 1")
db.commit()
with reprieve.open(".") as ws:
    ws.record_sql({str(path)!r}, [({back!r}, (), 1)], description="a credit", is_idempotent=True)
""",
    )
    return db


@story()
def sql_statements_are_undone(w: World) -> None:
    db = accounts(w)
    w.ask("effects")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.note("rows", db.execute("SELECT * FROM account").fetchall())
    db.close()


@story()
def a_row_that_somebody_changed_since_stays(w: World) -> None:
    db = accounts(w)
    db.execute("UPDATE account SET balance = 500")
    db.commit()
    w.ask("rollback", "base", "--yes")
    w.note("rows", db.execute("SELECT * FROM account").fetchall())
    db.close()


@story()
def recorded_commands_are_undone(w: World) -> None:
    w.project()
    w.sh("mkdir ../other ../other/one ../other/two")
    w.ok("record", "command", "--description", "a folder", "--", "rmdir", str(w.base / "other" / "one"))
    w.ok("record", "command", "--description", "a folder", "--", "rmdir", str(w.base / "other" / "two"))
    w.ask("effects")
    w.ask("rollback", "base", "--yes", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("effects", "--pending")


@story()
def a_command_that_fails_is_reported(w: World) -> None:
    w.project()
    w.ok("record", "command", "--description", "nothing", "--", "rmdir", str(w.base / "no-such-folder"))
    w.ask("rollback", "base", "--yes")


@story()
def an_agents_shell_command_waits_for_an_approval(w: World) -> None:
    w.project()
    w.run("agent", "reprieve record command --description 'clean up' -- sh -c 'touch pwned'")
    w.ask("rollback", "base", "--yes")
    w.ask("approvals")
    w.note("it did not run", not (w.root / "pwned").exists())


@story()
def undo_of_one_effect_by_its_id(w: World) -> None:
    with serving() as api:
        two_things(w, api)
        newest = w.ok("effects", "--json").json["effects"][0]["id"]
        w.ask("undo", newest, "--yes")
        w.note("things", api.things)


@story()
def held_mail_is_cancelled(w: World) -> None:
    w.project()
    mail = "reprieve mail stage --from a@example.org --to b@example.org --subject Offer --body Hello"
    w.run("agent", f"{mail}; echo x >> README.md")
    w.ask("mail", "pending")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("effects")


@story()
def held_mail_of_a_person_stays(w: World) -> None:
    w.project()
    w.run("agent", "echo x >> README.md")
    w.ok("mail", "stage", "--from", "a@example.org", "--to", "b@example.org", "--subject", "Mine", "--body", "Hello")
    w.ask("rollback", "base", "--yes")
    w.ask("effects")


THREAD = """
import sys, pathlib
import reprieve
from langgraph.checkpoint.base import empty_checkpoint
from reprieve.frameworks.langgraph import ReprieveSaver

with reprieve.open(".") as ws, ReprieveSaver(ws) as saver:
    parent = None
    for n in range(4):
        pathlib.Path(f"made{n}.txt").write_text(f"{n}\\n")
        checkpoint = empty_checkpoint()
        checkpoint["id"] = f"1f0a0000-0000-6000-8000-00000000000{n}"
        checkpoint["channel_values"] = {"plan": {"step": n}, "words": [f"word {k}" for k in range(n)]}
        config = {"configurable": {"thread_id": "order-7", "checkpoint_ns": "", "checkpoint_id": parent}}
        saver.put(config, checkpoint, {"source": "loop", "step": n, "parents": {}}, {})
        parent = checkpoint["id"]
"""


def thread(w: World) -> None:
    """The four states of an agent's thread; each wrote a file before."""
    w.project()
    w.sh(f"{sys.executable} -c '{THREAD}'")


def head(w: World) -> None:
    """Record the values of the newest state."""
    state = w.ok("thread", "show", "order-7", "head", "--json").json["state"]
    w.note("head", state["values"])


@story()
def a_thread_goes_back_without_files(w: World) -> None:
    thread(w)
    w.ask("thread", "rollback", "order-7", "~2", "--yes")
    head(w)
    states = w.ok("thread", "show", "order-7", "--json").json["states"]
    w.note("states", len(states))
    w.note("differences", w.ok("thread", "diff", "order-7", "~1", "head", "--json").json["differences"])


@story()
def a_thread_goes_back_with_its_files(w: World) -> None:
    thread(w)
    w.ask("thread", "rollback", "order-7", "~2", "--files", "--yes")
    head(w)
    w.ask("redo")


@story()
def threads_are_forked_handed_over_and_adopted(w: World) -> None:
    thread(w)
    w.ok("thread", "fork", "order-7", "~1", "copy", "--json")
    handed = w.ok("thread", "handoff", "order-7", "~2", "--to", "reviewer").out
    (w.base / "handed.json").write_text(handed)
    w.ok("thread", "adopt", str(w.base / "handed.json"), "review", "--json")
    threads = w.ok("thread", "list", "--json").json["threads"]
    w.note("threads", sorted([one["id"], one["states"]] for one in threads))
    found = w.ok("thread", "show", "review", "head", "--json").json["state"]["values"]
    w.note("adopted", json.loads(json.dumps(found)))
    w.ok("thread", "verify")
