"""`reprieve config`: the settings, where they come from, and how to change the user's own."""

from __future__ import annotations

from reprieve.app import config, places
from reprieve.cli import humane
from reprieve.cli.spec import Argument, Command, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Misconfigured, Usage

SPEC = Command(
    "config",
    "Show settings with their origin, or change one of yours",
    (
        ("reprieve config", "all settings, their values and where those come from"),
        ("reprieve config set exclude 'node_modules/' '*.iso'", "leave these unprotected, everywhere"),
    ),
    details=(
        "Changes go to your own configuration file. A workspace's reprieve.toml can only add excludes, lower the "
        "size limit and lengthen retention, because an agent can edit it."
    ),
    arguments=(
        Argument("ACTION", "What to do; default: list", choices=("list", "get", "set", "unset", "path")),
        Argument("KEY", "The setting", complete="key"),
        Argument("VALUE", "Its new value; several for a list", is_many=True),
    ),
    exit_codes=((3, "a setting or a configuration file is wrong"),),
)


def run(args: Parsed, out: Terminal) -> int:
    action, name, values = args.text("ACTION", "list"), args.text("KEY"), args.many("VALUE")
    if action in ("get", "set", "unset") and not name:
        raise Usage(f"'config {action}' needs KEY", hints=["the settings are listed by: reprieve config"])
    if (action in ("list", "path") and name) or (action in ("get", "unset") and values):
        raise Usage(f"'config {action}' does not take '{values[0] if values else name}'")
    if action == "path":
        out.answer(path=places.user_config())
        out.line(humane.safe(places.user_config()))
    elif action == "list":
        _list(args, out)
    elif action == "get":
        found = _load(args)
        value = found.value(name)
        out.answer(key=name, value=_plain(value), origin=found.origin(name))
        for line in value if isinstance(value, tuple) else (value,):
            out.line(humane.safe(_text(line)))
    else:
        _change(action, name, values, out)
    return 0


def _list(args: Parsed, out: Terminal) -> None:
    found = _load(args)
    rows = [(key, found.value(key.name), found.origin(key.name)) for key in config.KEYS]
    out.answer(
        settings=[
            {"key": key.name, "value": _plain(value), "origin": origin, "summary": key.summary}
            for key, value, origin in rows
        ],
        path=places.user_config(),
        problems=list(found.problems),
    )
    for key, value, origin in rows:
        out.line(f"{key.name} = {humane.safe(_text(value))}  ({humane.safe(origin)})")
        out.say(f"    {key.summary}", "dim")
    out.say(f"Your configuration file: {humane.safe(places.user_config())}")
    for problem in found.problems:
        out.reporter.warn(problem)


def _change(action: str, name: str, values: tuple[str, ...], out: Terminal) -> None:
    from reprieve.app import config_edit

    key = config.find_key(name)
    path = places.user_config()
    if action == "unset":
        config_edit.unset_key(path, key)
        out.answer(key=name, path=path)
        out.line(f"{name} is unset in {humane.safe(path)}")
        return
    if not values or (len(values) > 1 and key.kind != "patterns"):
        raise Usage(f"'config set {name}' needs {'a value' if not values else 'one value'}")
    value = config.convert(key, list(values) if key.kind == "patterns" else values[0], "config set")
    config_edit.set_key(path, key, value)
    out.answer(key=name, value=_plain(value), path=path)
    out.line(f"{name} = {humane.safe(_text(value))} in {humane.safe(path)}")


def _load(args: Parsed) -> config.Config:
    """The settings as they hold here: with the workspace's own if this is in one, else the user's alone."""
    from reprieve.app.finding import open_workspace
    from reprieve.model.reporter import Reporter

    try:
        with open_workspace(args.start, reporter=Reporter()) as ws:
            return ws.config
    except Misconfigured:
        return config.load()  # not in a workspace; a mistake in the user's own file is raised here again


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) if value else "none"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
