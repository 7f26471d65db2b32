"""`reprieve run --record-http`: Python programs below it record their HTTP calls, or do not run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Cli
from support.shop import Shop, open_shop


@pytest.fixture
def shop() -> Iterator[Shop]:
    with open_shop() as shop:
        yield shop


def program(path: Path, url: str, *, more: str = "") -> str:
    path.write_text(
        f"import json, subprocess, sys, urllib.request\n{more}\n"
        "def send(method, path, **body):\n"
        "    data = json.dumps(body).encode() if body else None\n"
        f"    asked = urllib.request.Request({url!r} + path, data, {{'Content-Type': 'text/json'}}, method=method)\n"
        "    return urllib.request.urlopen(asked, timeout=20).read()\n"
    )
    return str(path)


def test_calls_of_the_program_and_of_its_children_are_effects_of_the_run(cli: Cli, project: Path, shop: Shop) -> None:
    shop.add("/items/1", name="one")
    script = program(project.parent / "agent.py", shop.url)
    with open(script, "a") as file:
        file.write(
            "import requests, httpx\n"
            f"requests.post({shop.url + '/items'!r}, json={{'by': 'requests'}}, timeout=20)\n"
            f"httpx.patch({shop.url + '/items/1'!r}, json={{'name': 'two'}})\n"
            "open('made.txt', 'w').write('x')\n"
            "if len(sys.argv) < 2: subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
        )
    cli("run", "--record-http", "--label", "agent", "--", sys.executable, script)
    effects = cli("effects", "--json").json["effects"]
    assert [(e["state"], e["step"], e["description"].split()[0]) for e in effects] == [
        ("done", "agent", "PATCH"),
        ("done", "agent", "POST"),
    ] * 2
    report = cli("rollback", "step:agent", "--yes", "--json").json["report"]
    assert [e["state"] for e in report["effects"]] == ["undone"] * 4
    assert shop.things == {"/items/1": {"id": 1, "name": "one"}} and not (project / "made.txt").exists()


def test_without_the_option_nothing_is_recorded(cli: Cli, project: Path, shop: Shop) -> None:
    script = program(project.parent / "agent.py", shop.url)
    with open(script, "a") as file:
        file.write("send('POST', '/items', a=1)\n")
    cli("run", "--", sys.executable, script)
    assert cli("effects", "--json").json["effects"] == [] and len(shop.things) == 1


def test_a_program_whose_calls_cannot_be_recorded_does_not_run(cli: Cli, project: Path, home: Path, shop: Shop) -> None:
    """The journal's key is damaged: it ends before its first line, and says why."""
    script = program(project.parent / "agent.py", shop.url)
    with open(script, "a") as file:
        file.write("open('ran.txt', 'w')\nsend('POST', '/items', a=1)\n")
    cli("record", "command", "--description", "d", "--", "/bin/true")
    (home / "effects.key").write_bytes(b"short")
    done = cli("run", "--record-http", "--", sys.executable, script, check=False)
    assert done.code == 13 and "HTTP calls can't be recorded, so nothing is run" in done.err
    assert not (project / "ran.txt").exists() and shop.seen == []


def test_a_client_that_cannot_be_recorded_is_not_imported(cli: Cli, project: Path, tmp_path: Path) -> None:
    old = tmp_path / "old" / "aiohttp"
    old.mkdir(parents=True)
    (old / "__init__.py").write_text("__version__ = '3.8'\nclass ClientSession: ...\n")
    inherited = os.environ["PYTHONPATH"]
    env = {"PYTHONPATH": f"{old.parent}{os.pathsep}{inherited}"}
    done = cli("run", "--record-http", "--", sys.executable, "-c", "import aiohttp", env=env, check=False)
    assert done.code == 1 and "calls of aiohttp 3.8 can't be recorded" in done.err


def test_a_sitecustomize_that_was_there_before_is_loaded_too(cli: Cli, project: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import os; os.environ['THEIRS'] = 'yes'\n")
    env = {"PYTHONPATH": f"{theirs}{os.pathsep}{os.environ['PYTHONPATH']}"}
    script = (
        "import os, sys; from reprieve.gateways import python_http\n"
        "print(os.environ['THEIRS'], len(python_http._here), sys.modules['sitecustomize'].__file__)"
    )
    done = cli("run", "--record-http", "--", sys.executable, "-c", script, env=env)
    assert done.out.split() == ["yes", "1", str(theirs / "sitecustomize.py")]


def test_what_escapes_an_in_process_recorder_is_in_the_guide() -> None:
    """python -I and raw sockets are out of its reach: that must be said where people read it."""
    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "http-effects.md").read_text()
    for word in ("`python -I`", "raw sockets", "other languages"):
        assert word in guide
