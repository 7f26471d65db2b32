"""Canaries: credentials that pass through every way there is are found nowhere afterwards.

Not in the store, the journal, the spool, the answers, the errors. What a person put into a file of the folder is theirs
and comes back with it; it is not looked for here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.cli.hooking import reply
from support import Cli, Result
from support.api import Api, serving
from support.postoffice import Sink

# shaped as the real ones are, so that nothing is found by luck
CANARIES = {
    "bearer": "canary0bearer0f3e9c1d7a5b",
    "github": "ghp_" + "c4N4rY" * 6,
    "aws": "AKIA" + "CANARY7Q3XZ5W2LP",
    "stripe": "sk_live_" + "canary51Hq9fZ2eZvKYlo2C",
    "slack": "xoxb-" + "2345678901-canarycanarycanary",
    "password": "canary!hunter2-correct",
}


# An agent's program: a credential in a header, in the body, and in what the server answers
PROGRAM = """
import json, os, sys, urllib.request
api, secret = sys.argv[1], os.environ[sys.argv[2]]
for method, path in (("POST", "/things"), ("PUT", "/things/mine"), ("DELETE", "/things/mine")):
    body = json.dumps({"name": "x", "password": secret, "note": f"token={secret}"}).encode()
    headers = {"Authorization": f"Bearer {secret}", "Cookie": f"session={secret}"}
    urllib.request.urlopen(urllib.request.Request(api + path, method=method, data=body, headers=headers)).read()
"""


def _held(result: Result) -> list[str]:
    return [effect["id"] for effect in result.json["effects"]]


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        yield api


@pytest.fixture
def said(cli: Cli) -> tuple[Cli, list[Result]]:
    """The command line, and all that it ever said."""
    results: list[Result] = []

    def run(*args: str, **more: object) -> Result:
        result = cli(*args, check=False, **more)  # type: ignore[arg-type]
        results.append(result)
        return result

    return run, results  # type: ignore[return-value]


def test_S30_E10_bad_case_29_no_credential_is_found_anywhere(
    said: tuple[Cli, list[Result]], api: Api, home: Path, project: Path
) -> None:
    run, results = said
    env = {f"CANARY_{name.upper()}": value for name, value in CANARIES.items()}
    run("checkpoint", "base")
    for name, value in CANARIES.items():
        # by reference: the right way
        run(
            "record", "http", "--method", "POST", "--url", f"{api.url}/things?access_token={value}",
            "--undo-method", "DELETE", "--undo-url", f"{api.url}/private/things/1",
            "--undo-header", f"Authorization: Bearer env:CANARY_{name.upper()}", env=env,
        )  # fmt: skip
        # in the open: refused, and the refusal does not repeat it
        run(
            "record", "http", "--method", "POST", "--url", api.url, "--undo-method", "DELETE",
            "--undo-url", f"{api.url}/x", "--undo-header", f"Authorization: Bearer {value}", env=env,
        )  # fmt: skip
        run("record", "command", "--description", f"password={value}", "--", "echo", f"--token={value}", env=env)
        run("record", "command", "--description", f"with token={value}", "--", "true", env=env)
        for event, more in (("UserPromptSubmit", {"prompt": f"my password={value}"}), ("PreToolUse", {})):
            payload = {
                "session_id": "s", "cwd": str(project), "hook_event_name": event, "tool_name": "Bash",
                "tool_use_id": f"c-{name}",
                "tool_input": {"command": f"curl -H 'Authorization: Bearer {value}' -X POST {api.url}/things"}, **more,
            }  # fmt: skip
            run("hook", "claude-code", event, input=json.dumps(payload), env=env)
    # while an agent is at work here, mail is not ours to release
    stop = {"session_id": "s", "cwd": str(project), "hook_event_name": "Stop"}
    run("hook", "claude-code", "Stop", input=json.dumps(stop), env=env)
    program = project.parent / "agent.py"
    program.write_text(PROGRAM)
    for name in CANARIES:
        run("run", "--record-http", "--", sys.executable, str(program), api.url, f"CANARY_{name.upper()}", env=env)
    with Sink(login=("agent", CANARIES["password"])) as sink:
        for key, value in (
            ("host", "127.0.0.1"), ("port", str(sink.port)), ("security", "none"), ("user", "agent"),
            ("password", "env:CANARY_PASSWORD"),
        ):  # fmt: skip
            run("config", "set", f"mail.smtp_{key}", value, env=env)
        run(
            "mail",
            "stage",
            "--to",
            "a@example.org",
            "--from",
            "b@example.org",
            "--subject",
            "s",
            "--body",
            "x",
            env=env,
        )
        run("mail", "release", *_held(run("mail", "pending", "--json", env=env)), "--yes", env=env)
        assert sink.arrived, "the password was used, or this proves nothing"
    for words in (
        ("effects",), ("log",), ("log", "--all", "--json"), ("status",), ("diff",), ("approvals", "--json"),
        ("compensate", "base"), ("compensate", "base", "--execute", "--yes"),
        ("rollback", "base", "--dry-run", "--json"),
        ("rollback", "base", "--yes"), ("effects", "--json"), ("verify",),
    ):  # fmt: skip
        run(*words, env=env)
    sent = [seen for seen in api.changes() if seen.headers.get("Authorization", "").startswith("Bearer ")]
    assert sent, "the credentials were used, or this proves nothing"
    found = []
    for name, value in CANARIES.items():
        for path in home.rglob("*"):
            if path.is_file() and value.encode() in path.read_bytes():
                found.append(f"{name} in {path.relative_to(home)}")
        for result in results:
            if value in result.out or value in result.err:
                found.append(f"{name} in what was said: {result.out[:300]} {result.err[:300]}")
    assert not found, "\n".join(found)


# Command lines of agents, each with a credential where the program wants it. {} is the credential.
COMMANDS = (
    "git push https://x-access-token:{}@github.com/a/b.git main",
    'mysql -uroot -p{} -e "DROP TABLE x"',
    "redis-cli -a {} FLUSHALL",
    "redis-cli -a {} SET k v",
    "redis-cli AUTH {}",
    "docker login -u u -p {} && docker push x",
    "echo {} | docker login -u u --password-stdin && docker push x",
    "docker exec db mysql -uroot -p{} -e 'DROP TABLE x'",
    "twine upload -u __token__ -p pypi-{} dist/*",
    "gh secret set FOO --body {}",
    "echo {} | gh secret set FOO",
    "npm config set //registry.npmjs.org/:_authToken {} && npm publish",
    'curl -X POST -b "sid={}" https://api.example.com/v1/x',
    "curl -X POST -u {}: https://api.example.com/v1/x",
    "curl -X DELETE 'https://api.example.com/v1/x?api_key={}'",
    "kubectl create secret generic s --from-literal=password={}",
    "kubectl create secret generic s --from-literal=anything={}",
    "npm publish --auth-token={}",
    "poetry publish -p{}",
    "ssh host 'mysql -p{} -e \"DROP TABLE x\"'",
    "STRIPE_KEY={} npm publish",
    "X_TOKEN={}; npm publish --x $X_TOKEN && npm unpublish $X_TOKEN",
    "export AWS_SECRET_ACCESS_KEY={}; aws s3 rb s3://x",
    "sshpass -p {} ssh host reboot",
    "psql postgresql://u:{}@h/db -c 'DROP TABLE x'",
    "psql -c \"ALTER USER x WITH PASSWORD '{}'\"",
    r'curl -X POST -d "{\"password\": \"{}\"}" https://api.example.com/v1/x',
    "az login -u u --password {} && az group delete -n x",
    "openssl enc -aes256 -passin pass:{} -in f | curl -X POST -d @- https://api.example.com/v1/x",
    "htpasswd -b f u {} && scp f host:",
    "cat <<EOF | ssh h 'cat>k'\n-----BEGIN RSA " + "PRIVATE KEY-----\n{}\n-----END RSA " + "PRIVATE KEY-----\nEOF",
    "curl -X POST https://api.telegram.org/bot123456789:AAaaaaaaaaaaaaaa{}/sendMessage",
)
TOOLS: tuple[dict[str, object], ...] = (
    {"password": "{}"},
    {"auth": ["u", "{}"]},
    {"env": [{"name": "DB_PASSWORD", "value": "{}"}]},
    {"argv": ["mysql", "-p{}"]},
    {"args": ["--password", "{}"]},
    {"dsn": "postgres://u:{}@h/d"},
    {"headers": ["Authorization: Bearer {}"]},
    {"file_path": ".env", "content": "A=1\nDB_PASS={}\n"},
)


@pytest.mark.parametrize("mode", ["assist", "autopilot"])
def test_a_credential_in_a_call_is_neither_kept_nor_repeated(cli: Cli, home: Path, project: Path, mode: str) -> None:
    cli("config", "set", "policy.mode", mode)
    said = []
    calls: list[tuple[str, dict[str, object]]] = [("Bash", {"command": command}) for command in COMMANDS]
    calls += [("mcp__server__tool", arguments) for arguments in TOOLS]
    for number, (tool, arguments) in enumerate(calls):
        given = json.loads(json.dumps(arguments).replace("{}", f"zq{number}hunter2"))
        for event in ("PreToolUse", "PostToolUse"):
            payload = {
                "session_id": "s", "cwd": str(project), "hook_event_name": event, "tool_name": tool,
                "tool_use_id": f"c{number}", "tool_response": {}, "tool_input": given,
            }  # fmt: skip
            out, err, _ = reply(["claude-code", event], json.dumps(payload).encode(), os.environ)
            said += [out.decode(), err.decode()]
    for words in (("effects",), ("approvals",), ("log", "--all")):
        said.append(cli(*words, "--json").out)
    found = []
    for number, call in enumerate(calls):
        value = f"zq{number}hunter2"
        files = [path for path in home.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
        found += [f"{call} in {path.relative_to(home)}" for path in files]
        found += [f"{call} in what was said: {text[:300]}" for text in said if value in text]
    assert not found, "\n".join(found)


def test_a_command_that_undoes_and_holds_a_credential_is_refused(cli: Cli) -> None:
    for words in (("redis-cli", "-a", "zqhunter2", "DEL", "k"), ("true", "--password", "zqhunter2")):
        result = cli("record", "command", "--description", "x", "--", *words, check=False)
        assert result.code != 0 and "zqhunter2" not in result.out + result.err
    cli("record", "command", "--description", "x", "--", "true", "--password-file", "f")
    assert "zqhunter2" not in cli("effects", "--json").out


def test_a_credential_that_an_undoing_program_prints_is_not_kept(cli: Cli, home: Path, project: Path) -> None:
    tool = project.parent / "revoke"
    for code in (0, 1):
        tool.write_text(f"#!/bin/sh\necho 'revoked, token=zq''hunter2, bye'; exit {code}\n")
        tool.chmod(0o755)
        cli("checkpoint", f"base{code}")
        cli("record", "command", "--description", "x", "--", str(tool))
        result = cli("rollback", f"base{code}", "--effects", "--yes", "--json", check=False)
        assert "revoked" in result.out and "hunter2" not in result.out
    assert not [path for path in home.rglob("*") if path.is_file() and b"zqhunter2" in path.read_bytes()]
