"""Where MCP clients keep their servers, and what our entry looks like there; plans to put it in and to take it out.

`install_plan` and `uninstall_plan` look and decide; `foreign.apply` writes. In between a front end shows each change.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from reprieve.agents import foreign, mcp_entry
from reprieve.agents.foreign import Change
from reprieve.agents.machine import PROJECT, USER, Machine
from reprieve.errors import Misconfigured, Usage
from reprieve.model.value import Value

JSON, TOML, YAML = "json", "toml", "yaml"
# how a client says which folder it works in: it starts us there, it fills in a variable, or it does not say
IN_FOLDER, BY_VARIABLE, FIXED = "in folder", "by variable", "fixed"


class McpClient(Value):
    """One client. `project` "" if it has no servers of a project's own."""

    name: str
    title: str
    key: str
    folder: str
    user: Callable[[Machine], str]
    project: str = ""
    language: str = JSON
    shape: str = "plain"
    todo: str = ""


def _under(*parts: str) -> Callable[[Machine], str]:
    return lambda machine: machine.in_home(*parts)


def _claude(machine: Machine) -> str:
    return os.path.join(machine.variables.get("CLAUDE_CONFIG_DIR") or machine.home, ".claude.json")


def _codex(machine: Machine) -> str:
    return os.path.join(machine.variables.get("CODEX_HOME") or machine.in_home(".codex"), "config.toml")


def _opencode(machine: Machine) -> str:
    folder = os.path.join(machine.config_home(), "opencode")
    commented = os.path.join(folder, "opencode.jsonc")
    return commented if os.path.exists(commented) else os.path.join(folder, "opencode.json")


def _goose(machine: Machine) -> str:
    if machine.is_windows:
        return os.path.join(machine.app_data("Block"), "goose", "config", "config.yaml")
    return os.path.join(machine.config_home(), "goose", "config.yaml")


def _zed(machine: Machine) -> str:
    folder = machine.app_data("Zed") if machine.is_windows else os.path.join(machine.config_home(), "zed")
    return os.path.join(folder, "settings.json")


CLIENTS = (
    McpClient("claude-code", "Claude Code", "mcpServers", IN_FOLDER, _claude, ".mcp.json", shape="typed",
              todo="Claude Code asks once whether the servers of a project's .mcp.json may run"),
    McpClient("claude-desktop", "Claude Desktop", "mcpServers", FIXED,
              lambda m: os.path.join(m.app_data("Claude"), "claude_desktop_config.json"),
              todo="restart Claude Desktop"),
    McpClient("cursor", "Cursor", "mcpServers", BY_VARIABLE, _under(".cursor", "mcp.json"), ".cursor/mcp.json",
              todo="switch the server on in Cursor's settings"),
    McpClient("vscode", "VS Code", "servers", BY_VARIABLE,
              lambda m: os.path.join(m.app_data("Code"), "User", "mcp.json"), ".vscode/mcp.json", shape="typed"),
    McpClient("windsurf", "Windsurf", "mcpServers", FIXED, _under(".codeium", "windsurf", "mcp_config.json"),
              todo="press refresh in Windsurf's MCP panel"),
    McpClient("gemini", "Gemini CLI", "mcpServers", IN_FOLDER, _under(".gemini", "settings.json"),
              ".gemini/settings.json"),
    McpClient("codex", "Codex", "mcp_servers", IN_FOLDER, _codex, ".codex/config.toml", TOML),
    McpClient("opencode", "opencode", "mcp", IN_FOLDER, _opencode, "opencode.json", shape="list"),
    McpClient("zed", "Zed", "context_servers", FIXED, _zed, ".zed/settings.json", shape="custom"),
    McpClient("goose", "Goose", "extensions", IN_FOLDER, _goose, "", YAML, "extension"),
)  # fmt: skip
NAMES = tuple(client.name for client in CLIENTS)


def find(name: str) -> McpClient:
    """The client of that name. Raises Usage."""
    for client in CLIENTS:
        if client.name == name:
            return client
    raise Usage(f"'{name}' is no client that we know", hints=[f"known are: {', '.join(NAMES)}"])


def entry_of(client: McpClient, machine: Machine) -> dict[str, object]:
    """Our server, in the client's own shape."""
    where = {IN_FOLDER: (), BY_VARIABLE: ("-C", "${workspaceFolder}"), FIXED: ("-C", machine.project)}[client.folder]
    command, *rest = machine.command
    args = [*rest, "mcp", *where]
    if client.shape == "list":
        return {"type": "local", "command": [command, *args], "enabled": True}
    if client.shape == "extension":
        about = "Undo for AI agents: checkpoints, plans, rollback"
        head = {"name": mcp_entry.NAME, "description": about, "type": "stdio", "enabled": True}
        return {**head, "cmd": command, "args": args, "envs": {}, "timeout": 300}
    first = {"typed": {"type": "stdio"}, "custom": {"source": "custom"}}.get(client.shape, {})
    return {**first, "command": command, "args": args}


def snippet(client: McpClient, machine: Machine) -> str:
    """The entry as text to put in by hand."""
    entry = entry_of(client, machine)
    if client.language == TOML:
        return mcp_entry.merge_toml(None, entry, key=client.key, name="", client=client.name)
    if client.language == YAML:
        fields = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in entry.items())
        return f"{client.key}:\n  {mcp_entry.NAME}:\n{fields}"
    return json.dumps({client.key: {mcp_entry.NAME: entry}}, indent=2) + "\n"


def path_of(client: McpClient, scope: str, machine: Machine) -> str:
    """The file to write to. Raises Usage."""
    if scope == USER:
        return client.user(machine)
    if not client.project:
        raise Usage(f"{client.title} has no servers of a project's own", hints=["use --scope user"])
    return machine.in_project(*client.project.split("/"))


def install_plan(name: str, scope: str, machine: Machine) -> Change:
    """What to write so that the client starts our server. A file that can't be changed is a Change with a `problem`."""
    client = find(name)
    path = path_of(client, scope, machine)
    todo = (client.todo,) if client.todo else ()
    if client.folder == FIXED:
        todo = (f"{client.title} does not say which folder it works in: this server is for {machine.project}", *todo)
    base = Change(agent=name, scope=scope, path=path, real_path=path, notes=todo)
    try:
        now = foreign.read(path)
        new = _merge(client, now.text, entry_of(client, machine), path)
        had_ours = _has_ours(client, now.text, path)
    except Misconfigured as problem:
        return base.replace(problem=problem)
    return base.replace(real_path=now.real_path, old=now.text, new=new, had_ours=had_ours, notes=(*now.notes, *todo))


def uninstall_plan(names: Sequence[str], machine: Machine, *, records: str, scope: str | None = None) -> list[Change]:
    """What to write so that these clients (none named: all) no longer start our server."""
    changes: dict[str, Change] = {}
    for name in names or NAMES:
        client = find(name)
        for each in (scope,) if scope else (USER, PROJECT):
            if each == PROJECT and not client.project:
                continue
            change = _removal(client, each, path_of(client, each, machine), records)
            if change is not None:
                changes.setdefault(change.path, change)
    return list(changes.values())


def _removal(client: McpClient, scope: str, path: str, records: str) -> Change | None:
    base = Change(agent=client.name, scope=scope, path=path, real_path=path, is_removal=True, had_ours=True)
    record = foreign.load_record(records, path)
    try:
        now = foreign.read(path)
        if now.text is None:
            return None
        new = _unmerge(client, now.text, record.before if record else None, record is not None, path)
    except Misconfigured as problem:
        return base.replace(problem=problem) if record else None  # what we never wrote to is no business of ours
    if new == now.text:
        return None
    if record is not None and now.text == record.after and not _has_ours(client, record.before, path):
        new = record.before
    return base.replace(real_path=now.real_path, old=now.text, new=new, notes=now.notes)


def _has_ours(client: McpClient, text: str | None, path: str) -> bool:
    return text is not None and _unmerge(client, text, None, False, path) != text


def _merge(client: McpClient, text: str | None, entry: Mapping[str, object], path: str) -> str:
    if client.language == TOML:
        return mcp_entry.merge_toml(text, entry, key=client.key, name=path, client=client.name)
    if client.language == YAML:
        return mcp_entry.merge_yaml(text, entry, key=client.key, name=path)
    return mcp_entry.merge_json(text, entry, key=client.key, name=path)


def _unmerge(client: McpClient, text: str, before: str | None, is_before_known: bool, path: str) -> str | None:
    unmerge = {TOML: mcp_entry.unmerge_toml, YAML: mcp_entry.unmerge_yaml}.get(client.language, mcp_entry.unmerge_json)
    return unmerge(text, before=before, is_before_known=is_before_known, key=client.key, name=path)
