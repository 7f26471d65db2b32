"""Our server in awkward configurations of MCP clients, and out again: everything else stays byte for byte."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.agents import foreign, jsonc, mcp_clients, mcp_entry
from reprieve.agents.foreign import Change
from reprieve.agents.machine import Machine
from reprieve.agents.mcp_clients import NAMES, find, install_plan, path_of, uninstall_plan
from reprieve.errors import Conflict, Misconfigured, Usage

from .test_configuration import BIG

JSON_CLIENTS = [name for name in NAMES if find(name).language == "json"]


@pytest.fixture
def records(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "agents" / "mcp")


def install(name: str, machine: Machine, records: str, scope: str = "user") -> Change:
    change = install_plan(name, scope, machine)
    foreign.apply(change, records=records)
    return change


def remove(name: str, machine: Machine, records: str) -> list[Change]:
    plan = uninstall_plan([name], machine, records=records)
    for change in plan:
        foreign.apply(change, records=records)
    return plan


def file_of(name: str, machine: Machine, scope: str = "user") -> Path:
    return Path(path_of(find(name), scope, machine))


def servers(name: str, text: str) -> Any:
    client = find(name)
    if client.language == "toml":
        return tomllib.loads(text)[client.key]
    if client.language == "yaml":
        return yaml.safe_load(text)[client.key]
    return jsonc.parse(text).value()[client.key]  # type: ignore[index]


def awkward(key: str) -> dict[str, bytes | None]:
    """Configurations that people have."""
    theirs = '"other": {"command": "npx", "args": ["-y", "x"]}'
    return {
        "absent": None,
        "empty": b"",
        "blank": b" \n\n",
        "empty object": b"{}",
        "empty object over lines": b"{\n}\n",
        "one line": b'{"theme": "dark", "n": [1, 2]}',
        "compact": f'{{"theme":"dark","{key}":{{}}}}\n'.encode(),
        "tabs": f'{{\n\t"{key}": {{\n\t\t{theirs}\n\t}}\n}}\n'.encode(),
        "four blanks, no final newline": b'{\n    "theme": "dark"\n}',
        "windows line ends": f'{{\r\n  "theme": "dark",\r\n  "{key}": {{\r\n  }}\r\n}}\r\n'.encode(),
        "byte order mark": b'\xef\xbb\xbf{\n  "theme": "dark"\n}\n',
        "comments": f'// mine\n{{\n // about\n "{key}": {{ // yes\n  {theirs} // last\n }} // x\n}}\n// end\n'.encode(),
        "trailing commas": f'{{\n  "{key}": {{\n    {theirs},\n  }},\n}}\n'.encode(),
        "not ascii": '{"name": "Zoë ☃ 日本", "path": "C:\\\\x", "q": "\\u00e9\\""}\n'.encode(),
        "looks like ours": b'{"reprieve": {"command": "reprieve", "args": ["mcp"]}, "note": "reprieve mcp"}',
        "huge": BIG.encode(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "case"), [(n, c) for n in JSON_CLIENTS for c in awkward("x") if c != "huge" or n == "claude-code"]
)
def test_install_then_uninstall_gives_the_same_bytes(name: str, case: str, machine: Machine, records: str) -> None:
    path, before = file_of(name, machine), awkward(find(name).key)[case]
    if before is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(before)
        path.chmod(0o640)
    install(name, machine, records)
    found = servers(name, path.read_text(encoding="utf-8"))
    assert found["reprieve"] == mcp_clients.entry_of(find(name), machine)
    assert not install_plan(name, "user", machine).is_needed  # twice is once
    if before is not None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        if b"other" in before:
            assert found["other"] == {"command": "npx", "args": ["-y", "x"]}
        for comment in (b"// mine", b"// about", b"// yes", b"// last", b"// x", b"// end"):
            assert (comment in before) == (comment in path.read_bytes())
    remove(name, machine, records)
    if before is None:
        assert not path.exists() and os.listdir(machine.home) == []
    else:
        assert path.read_bytes() == before


TOMLS = {
    "absent": None,
    "empty": b"",
    "tables": b'model = "x" # mine\n\n[mcp_servers.other]\ncommand = "npx"\n\n[profiles.a]\nx = 1\n',
    "no final newline": b'model = "x"',
    "windows line ends": b'model = "x"\r\n[a]\r\nb = 1\r\n',
}
YAMLS = {
    "absent": None,
    "empty": b"",
    "no extensions": b"# mine\nGOOSE_MODEL: x\n",
    "no final newline": b"GOOSE_MODEL: x",
    "extensions": b"M: x\nextensions:\n  # about\n  developer:\n    enabled: true # yes\n    type: builtin\nlast: 1\n",
    "four blanks": b"extensions:\n    developer:\n        enabled: true\n",
    "empty extensions": b"extensions: {}\nlast: 1\n",
    "windows line ends": b"extensions:\r\n  a:\r\n    enabled: true\r\n",
}


@pytest.mark.parametrize(("name", "case"), [*(("codex", c) for c in TOMLS), *(("goose", c) for c in YAMLS)])
def test_toml_and_yaml_come_back_as_well(name: str, case: str, machine: Machine, records: str) -> None:
    path, before = file_of(name, machine), (TOMLS if name == "codex" else YAMLS)[case]
    if before is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(before)
    install(name, machine, records)
    text = path.read_bytes().decode()
    assert servers(name, text)["reprieve"] == mcp_clients.entry_of(find(name), machine)
    for line in (before or b"").decode().splitlines():
        assert line in text or line == "extensions: {}"
    assert not install_plan(name, "user", machine).is_needed
    remove(name, machine, records)
    assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("name", NAMES)
def test_what_a_person_adds_afterwards_stays(name: str, machine: Machine, records: str) -> None:
    """Also where the client writes the file anew, and nobody remembers what was there before."""
    path = file_of(name, machine)
    install(name, machine, records)
    text = path.read_text()
    client = find(name)
    if client.language == "toml":
        text += '\n[mcp_servers.mine]\ncommand = "x" # why\n'
    elif client.language == "yaml":
        text += "  mine:\n    cmd: x # why\n"
    else:
        value = json.loads(text)
        value[client.key]["mine"] = {"command": "x"}
        text = json.dumps(value, indent=4)
    path.write_text(text)
    Path(foreign._record_path(records, str(path))).unlink()
    (change,) = remove(name, machine, records)
    left = servers(name, path.read_text())
    assert list(left) == ["mine"] and "reprieve" not in path.read_text()
    assert client.language == "json" or "# why" in path.read_text()
    assert change.diff()


@pytest.mark.parametrize("name", NAMES)
def test_a_server_of_that_name_which_is_not_ours_is_left_alone(name: str, machine: Machine, records: str) -> None:
    path, client = file_of(name, machine), find(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if client.language == "toml":
        before = '[mcp_servers.reprieve]\ncommand = "mine"\n'
    elif client.language == "yaml":
        before = "extensions:\n  reprieve:\n    cmd: mine\n"
    else:
        before = json.dumps({client.key: {"reprieve": {"command": "mine"}}})
    path.write_text(before)
    assert isinstance(install_plan(name, "user", machine).problem, Misconfigured)
    with pytest.raises(Misconfigured):
        install(name, machine, records)
    assert uninstall_plan([name], machine, records=records) == [] and path.read_text() == before


BROKEN = {
    "json": ["{", '{"a": 1,, }', "[1]", '{"KEY": [1]}', "\x00"],
    "toml": ["a = ", "[mcp_servers]\nreprieve = 1\n", "mcp_servers = {}\n"],
    "yaml": ["a: [", "- 1\n", "extensions: [1]\n", "extensions: {a: {enabled: true}}\n", "extensions: 1\n"],
}


@pytest.mark.parametrize("name", ["cursor", "zed", "codex", "goose"])
def test_what_cannot_be_read_is_left_alone(name: str, machine: Machine, records: str) -> None:
    path, client = file_of(name, machine), find(name)
    path.parent.mkdir(parents=True)
    for text in BROKEN[client.language]:
        path.write_text(text.replace("KEY", client.key))
        before = path.read_bytes()
        change = install_plan(name, "user", machine)
        assert change.problem is not None and change.problem.hints, text
        assert path.read_bytes() == before


def test_an_entry_of_ours_that_is_old_is_replaced_in_place(machine: Machine, records: str) -> None:
    path = file_of("cursor", machine)
    path.parent.mkdir()
    path.write_text(
        '{"mcpServers": {"reprieve": {"command": "/old/reprieve", "args": ["mcp"]}, "z": {"command": "z"}}}'
    )
    install("cursor", machine, records)
    found = servers("cursor", path.read_text())
    assert list(found) == ["reprieve", "z"] and found["reprieve"]["command"] == machine.command[0]
    remove("cursor", machine, records)
    assert list(servers("cursor", path.read_text())) == ["z"]


def test_a_file_that_changed_in_between_is_not_written(machine: Machine, records: str) -> None:
    path = file_of("cursor", machine)
    path.parent.mkdir()
    path.write_text("{}")
    change = install_plan("cursor", "user", machine)
    path.write_text('{"mine": 1}')
    with pytest.raises(Conflict):
        foreign.apply(change, records=records)
    assert path.read_text() == '{"mine": 1}'


def test_hooks_and_server_in_one_file_are_taken_out_in_any_order(machine: Machine, tmp_path: Path) -> None:
    from reprieve.agents.protect import protect_plan, unprotect_plan

    path, hooks, own = file_of("gemini", machine), str(tmp_path / "state" / "h"), str(tmp_path / "state" / "h" / "mcp")
    before = b'{\n  // mine\n  "theme": "dark"\n}\n'
    for order in ((0, 1), (1, 0)):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(before)
        for change in protect_plan(["gemini"], "user", machine):
            foreign.apply(change, records=hooks)
        install("gemini", machine, own)
        for step in order:
            if step:
                remove("gemini", machine, own)
            else:
                for change in unprotect_plan(["gemini"], machine, records=hooks):
                    foreign.apply(change, records=hooks)
        assert path.read_bytes() == before


def test_scopes_and_names(machine: Machine) -> None:
    for name in NAMES:
        if find(name).project:
            assert path_of(find(name), "project", machine).startswith(machine.project)
        else:
            with pytest.raises(Usage):
                path_of(find(name), "project", machine)
    with pytest.raises(Usage):
        find("emacs")
    mac = machine.replace(platform="darwin")
    assert "Library/Application Support/Claude" in path_of(find("claude-desktop"), "user", mac)


def test_what_is_ours() -> None:
    assert mcp_entry.is_ours({"command": "/x/reprieve", "args": ["mcp", "-C", "/p"]})
    assert mcp_entry.is_ours({"command": ["python", "-m", "reprieve", "mcp"]})
    assert mcp_entry.is_ours({"command": "C:\\x\\reprieve.exe", "args": ["mcp"]})
    assert not mcp_entry.is_ours({"command": "reprieve", "args": ["gateway", "--", "x"]})
    assert not mcp_entry.is_ours({"command": "npx", "args": ["reprieve-like", "mcp"]})
