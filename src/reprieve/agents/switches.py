"""Find out whether an agent was told, in any of the files that it puts together, to run no hooks or not ours.

The strongest file that says anything decides, as it does for the agent. Only looks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from reprieve.agents import jsonc, registry
from reprieve.agents.machine import PROJECT, USER, Machine

Off = tuple[str, str]  # why the agent ignores our entries, and what to do


def switched_off(name: str, machine: Machine, ours: Sequence[str]) -> Off | None:
    """Why the agent does not run our entries in the files `ours`, None if nothing speaks against it."""
    look = {"claude-code": _claude, "codex": _codex, "gemini": _gemini, "goose": _goose, "openhands": _openhands}
    return look[name](machine, ours) if name in look else None


def _claude(machine: Machine, ours: Sequence[str]) -> Off | None:
    system = "/Library/Application Support/ClaudeCode" if machine.platform == "darwin" else "/etc/claude-code"
    managed = os.path.join(system, "managed-settings.json")
    if _settings(managed).get("allowManagedHooksOnly") is True:
        return f"'{managed}' says allowManagedHooksOnly: Claude Code runs no hook of yours", "ask who manages it"
    local, shared = (machine.in_project(".claude", name) for name in ("settings.local.json", "settings.json"))
    for path in (managed, local, shared, *_targets("claude-code", machine, USER)):
        said = _settings(path).get("disableAllHooks")
        if said is True:
            return f"'{path}' says disableAllHooks: Claude Code runs no hook", "take that line out"
        if said is False:
            return None
    return None


def _gemini(machine: Machine, ours: Sequence[str]) -> Off | None:
    system = "/Library/Application Support/GeminiCli" if machine.platform == "darwin" else "/etc/gemini-cli"
    variables = machine.variables
    paths = (
        variables.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH") or os.path.join(system, "settings.json"),
        *_targets("gemini", machine, PROJECT),
        *_targets("gemini", machine, USER),
        variables.get("GEMINI_CLI_SYSTEM_DEFAULTS_PATH") or os.path.join(system, "system-defaults.json"),
    )
    configs = [(path, config) for path in paths if isinstance(config := _settings(path).get("hooksConfig"), dict)]
    for path, config in configs:
        if config.get("enabled") is False:
            return f"'{path}' says hooksConfig.enabled = false: Gemini CLI runs no hook", "take that line out"
        if config.get("enabled") is True:
            break
    for path, config in configs:  # lists are put together, not overridden
        if "reprieve" in _list(config.get("disabled")):
            return f"'{path}' has 'reprieve' under hooksConfig.disabled", "take that name out"
    return None


def _goose(machine: Machine, ours: Sequence[str]) -> Off | None:
    of_project = (machine.in_project(".config", "goose", name) for name in ("settings.local.json", "settings.json"))
    for path in (*of_project, machine.in_home(".config", "goose", "settings.json")):
        settings = _settings(path)
        if "reprieve" in _list(settings.get("disabledPlugins")):
            return f"'{path}' has 'reprieve' under disabledPlugins: Goose runs no hook of it", "take that name out"
        if "reprieve" in _list(settings.get("enabledPlugins")):
            return None
    return None


def _openhands(machine: Machine, ours: Sequence[str]) -> Off | None:
    """It reads the first file that it finds, and no other."""
    (path,) = _targets("openhands", machine, PROJECT)
    if path in ours or not os.path.exists(path):
        return None
    return f"'{path}' hides yours: OpenHands reads no other", "reprieve protect openhands --scope project"


def _codex(machine: Machine, ours: Sequence[str]) -> Off | None:
    if all(_is_trusted(path) for path in ours if path.endswith("hooks.json")):
        return None
    return "Codex drops our entries without a word until you trust them", "open /hooks in Codex and trust them"


def _is_trusted(path: str) -> bool:
    """Whether Codex holds a trust for the entries of this file. Whether it still fits is Codex's to say."""
    import tomllib

    try:
        with open(os.path.join(os.path.dirname(path), "config.toml"), "rb") as file:
            hooks = tomllib.load(file).get("hooks")
    except (OSError, ValueError):
        return False
    state = hooks.get("state") if isinstance(hooks, dict) else None
    return isinstance(state, dict) and any(str(key).startswith(path + ":") for key in state)


def _targets(name: str, machine: Machine, scope: str) -> tuple[str, ...]:
    return tuple(target.path for target in registry.load(name).targets(machine, scope))


def _settings(path: str) -> dict[str, object]:
    """What a file says; nothing if it is not there, or not what its agent could read."""
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            value = jsonc.parse(file.read(), inside="").value()
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
