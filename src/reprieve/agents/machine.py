"""Where agents keep their configuration, seen from one machine, user and project; and what is planned for those files.

`Machine` is handed in (tests make their own); nothing here reads the environment by itself. Not on the hook's path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from reprieve.model.hookevent import BEFORE
from reprieve.model.value import Value

USER = "user"
PROJECT = "project"

# The start of a line that blocks the call when our program ends without an answer; `hookfile` knows it by this.
GUARD = '"$0" "$@" || {'
ENDED = (
    "Blocked by Reprieve: it ended without an answer. Nothing ran. "
    "Ask the user to run reprieve doctor in their own terminal."
)
_GONE = (
    "Reprieve is not installed any more, but its hook is still in {}. "
    "Remove {}, or reinstall Reprieve and run: reprieve unprotect"
)
_PLAIN_PATH = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._-+@%=:,/")


class Machine(Value):
    """A user's home, the project, the platform (`sys.platform`), the environment, and how our command is called.

    `command` should be absolute: agents started from a desktop often have another PATH. It must not change between two
    releases, because Codex ties the person's trust to the exact text.
    """

    home: str
    project: str
    platform: str
    variables: Mapping[str, str]
    command: tuple[str, ...] = ("reprieve",)

    @property
    def is_windows(self) -> bool:
        return self.platform == "win32"

    def in_home(self, *parts: str) -> str:
        return os.path.join(self.home, *parts)

    def in_project(self, *parts: str) -> str:
        return os.path.join(self.project, *parts)

    def config_home(self) -> str:
        """XDG's configuration directory; opencode, Crush and Goose use it on macOS as well."""
        return self.variables.get("XDG_CONFIG_HOME") or self.in_home(".config")

    def app_data(self, name: str) -> str:
        """Where desktop programs keep their data (VS Code, Cursor, Windsurf)."""
        if self.platform == "darwin":
            return self.in_home("Library", "Application Support", name)
        if self.is_windows:
            return os.path.join(self.variables.get("APPDATA") or self.in_home("AppData", "Roaming"), name)
        return os.path.join(self.config_home(), name)

    def has_program(self, *names: str) -> bool:
        """True if one of these programs is on the PATH."""
        import shutil

        path = self.variables.get("PATH", "")
        return bool(path) and any(shutil.which(name, path=path) for name in names)

    def has_folder(self, *paths: str) -> bool:
        return any(os.path.isdir(path) for path in paths)

    def shell_command(self, *words: str) -> str:
        """Our command line for a shell, quoted."""
        parts = [*self.command, *words]
        if self.is_windows:
            return " ".join(f'"{p}"' if " " in p else p for p in parts)
        import shlex

        return shlex.join(parts)

    def hook_command(self, agent: str, event: str, *, kind: str, file: str) -> str:
        """The line for one event that goes into `file`. Before a call it blocks if our program ends without an answer.

        Agents let a call run when its hook is killed or gone. `/bin/sh` because an agent may run hooks in the person's
        own shell (Codex does), and that may be fish.
        """
        command = self.shell_command("hook", agent, event)
        if kind != BEFORE or self.is_windows:
            return command
        gone = self.gone_text(file, "the hook entry there")
        script = f'{GUARD} case $? in 2) ;; 127) echo "{gone}" ;; *) echo "{ENDED}" ;; esac >&2; exit 2; }}'
        return f"/bin/sh -c '{script}' {command}"

    def gone_text(self, file: str, what: str) -> str:
        """For a person whose Reprieve is uninstalled and whose agent still calls it. Fits between double quotes."""
        shown = "~" + file.removeprefix(self.home) if file.startswith(os.path.join(self.home, "")) else file
        return _GONE.format(shown if _PLAIN_PATH.issuperset(shown[1:]) else "the settings of this agent", what)


class Target(Value):
    """One file of an agent that we write to. `part` tells an agent's files apart; `is_own`: the whole file is ours."""

    path: str
    part: str = "hooks"
    is_own: bool = False
    is_executable: bool = False
    scope: str = USER
