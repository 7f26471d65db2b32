"""Where the store and the configuration live on each platform."""

from __future__ import annotations

import os
import sys


def home() -> str:
    """The store's directory: REPRIEVE_HOME, or the platform's state directory."""
    return _from_env("REPRIEVE_HOME") or _platform("state", "XDG_STATE_HOME", ".local/state")


def user_config() -> str:
    """The user's configuration file: REPRIEVE_CONFIG, or config.toml in the platform's config directory."""
    given = _from_env("REPRIEVE_CONFIG")
    return given or os.path.join(_platform("config", "XDG_CONFIG_HOME", ".config"), "config.toml")


def _from_env(name: str) -> str:
    given = os.environ.get(name, "")
    return os.path.abspath(os.path.expanduser(given)) if given else ""


def _platform(kind: str, variable: str, below_home: str) -> str:
    if sys.platform in ("darwin", "win32"):
        import platformdirs

        if kind == "state":
            return platformdirs.user_state_dir("reprieve", appauthor=False)
        return platformdirs.user_config_dir("reprieve", appauthor=False)
    # Inline because platformdirs costs 6 ms per command. A relative XDG path is invalid and ignored, says the standard.
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), below_home)
    return os.path.join(base, "reprieve")
