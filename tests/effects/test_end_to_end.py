"""An agent at work on everything at once, and one rollback that takes it all back, in reverse, once.

Real servers: an HTTP API with ETags and idempotency keys, a mail server, a git remote, a database, and files.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Cli
from support.api import Api, serving
from support.postoffice import Sink
from support.tree import diff_fingerprints, fingerprint

# What the agent does: twenty things, interleaved. Each effect notes its inverse as an agent would that was told to.
AGENT = """
import json, os, smtplib, sqlite3, subprocess, sys, urllib.request
api, elsewhere = sys.argv[1:3]

def reprieve(*words):
    return subprocess.run([sys.executable, "-m", "reprieve", *words], check=True, capture_output=True, text=True)

def call(method, path, body=None):
    request = urllib.request.Request(api + path, method=method, data=json.dumps(body).encode() if body else None)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)

def record(method, path, undo_method, undo_path, undo=None, depends=()):
    more = ["--undo-json", json.dumps(undo)] if undo is not None else []
    for name in depends:
        more += ["--depends", name]
    reprieve("record", "http", "--method", method, "--url", api + path, "--undo-method", undo_method,
             "--undo-url", api + undo_path, "--resource", api + undo_path, *more)

def git(*words):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *words], check=True, capture_output=True)

db = sqlite3.connect("data.db")
open("README.md", "w").write("rewritten")                                            # 1 file
one = call("POST", "/things", {"name": "one"})["id"]                                 # 2 http
record("POST", "/things", "DELETE", f"/things/{one}")
db.execute("DELETE FROM people"); db.commit()                                        # 3 database
call("PUT", f"/things/{one}", {"name": "uno"})                                       # 4 http
record("PUT", f"/things/{one}", "PUT", f"/things/{one}", {"name": "one"})
os.remove("src/util.py")                                                             # 5 file
call("PUT", "/things/old", {"name": "changed"})                                      # 6 http
record("PUT", "/things/old", "PUT", "/things/old", {"name": "old"})
with smtplib.SMTP(os.environ["SMTP_HOST"], int(os.environ["SMTP_PORT"])) as mail:    # 7 mail, held
    mail.sendmail("agent@example.org", ["boss@example.org"], b"Subject: I quit\\r\\n\\r\\nBye.\\r\\n")
git("add", "-A"); git("commit", "-qm", "agent")                                      # 8 git, here
reprieve("run", "--label", "push", "--", "git", "push", "-q", "origin", "topic")     # 9 git, there
two = call("POST", "/things", {"name": "two"})["id"]                                 # 10 http
record("POST", "/things", "DELETE", f"/things/{two}")
os.mkdir(elsewhere)                                                                  # 11 elsewhere
reprieve("record", "command", "--description", "a folder elsewhere", "--", "rmdir", elsewhere)
os.symlink("/etc/passwd", "link2")                                                   # 12 file
call("PATCH", f"/things/{two}", {"size": 3})                                         # 13 http
record("PATCH", f"/things/{two}", "PUT", f"/things/{two}", {"name": "two"})
db.execute("INSERT INTO people VALUES ('eve')"); db.commit()                         # 14 database
os.chmod("tool.sh", 0o777)                                                           # 15 file
call("DELETE", "/things/precious")                                                   # 16 http
record("DELETE", "/things/precious", "PUT", "/things/precious", {"name": "precious", "id": "precious"})
open(".env", "w").write("TOKEN=stolen")                                              # 17 an ignored file
charge = call("POST", "/charges", {"amount": 5})["id"]                               # 18 http, money
record("POST", "/charges", "POST", "/refunds", {"charge": charge})
"""


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        api.things["old"] = {"name": "old", "id": "old"}
        api.things["precious"] = {"name": "precious", "id": "precious"}
        yield api


def git(where: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, *words], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


def refused(cli: Cli, project: Path, command: str) -> str:
    """What the agent's hook answers to a command."""
    payload = {
        "session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_use_id": command, "tool_input": {"command": command},
    }  # fmt: skip
    answer = json.loads(cli("hook", "claude-code", "PreToolUse", input=json.dumps(payload)).out)
    return str(answer["hookSpecificOutput"]["permissionDecision"])


def test_P_01_one_rollback_takes_back_twenty_effects_of_every_kind(cli: Cli, project: Path, api: Api) -> None:
    bare, elsewhere = project.parent / "remote.git", project.parent / "elsewhere"
    git(project.parent, "init", "-q", "--bare", str(bare))
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "one")
    git(project, "remote", "add", "origin", str(bare))
    git(project, "push", "-q", "origin", "main")
    git(project, "checkout", "-qb", "topic")
    with sqlite3.connect(project / "data.db") as db:
        db.execute("CREATE TABLE people (name TEXT)")
        db.executemany("INSERT INTO people VALUES (?)", [("ada",), ("bob",)])
    db.close()
    cli("config", "set", "policy.mode", "autopilot")
    cli("checkpoint", "base")
    before, things, refs = fingerprint(project), json.loads(json.dumps(api.things)), git(bare, "show-ref")

    with Sink() as post:
        agent = project.parent / "agent.py"
        agent.write_text(AGENT)
        cli("run", "--label", "agent", "--hold-mail", "--", sys.executable, str(agent), api.url, str(elsewhere))
        assert refused(cli, project, "npm publish") == "deny"  # 19
        assert refused(cli, project, f"curl -X DELETE {api.url}/things/old") == "deny"  # 20
        assert not post.arrived
        effects = cli("effects", "--json").json["effects"]
        assert len(effects) == 10 and [e["state"] for e in effects].count("held") == 1
        assert api.things != things and git(bare, "show-ref") != refs and elsewhere.exists()
        done = len(api.done)

        report = cli("rollback", "base", "--yes", "--everything", "--pushed", "--json").json["report"]

        assert {e["state"] for e in report["effects"]} == {"undone", "canceled"}
        order = [e["id"] for e in report["effects"]]
        assert order == [e["id"] for e in effects]  # newest first, over all kinds
        undone = api.done[done:]
        assert undone == [
            "POST /refunds", "PUT /things/precious", "PUT /things/2", "DELETE /things/2", "PUT /things/old",
            "PUT /things/1", "DELETE /things/1",
        ]  # fmt: skip
        assert {k: v["name"] for k, v in api.things.items()} == {k: v["name"] for k, v in things.items()}
        assert api.refunds == ['{"charge": "ch_3"}']
        assert git(bare, "show-ref") == refs
        assert not elsewhere.exists()
        assert not post.arrived and not cli("mail", "pending", "--json").json["effects"]
        assert not diff_fingerprints(before, fingerprint(project), ignore=("mtime",), limit=5)
        with sqlite3.connect(project / "data.db") as db:
            assert db.execute("SELECT name FROM people").fetchall() == [("ada",), ("bob",)]
        db.close()

        sent = len(api.requests)
        again = cli("rollback", "base", "--yes", "--everything", "--pushed", "--json").json["report"]
        assert not again["effects"] and len(api.requests) == sent and len(api.refunds) == 1
        assert os.path.exists(project / "src" / "util.py")
