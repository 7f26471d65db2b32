"""`reprieve config`: show settings and where they come from, change the user's own, accept weaker ones."""

from __future__ import annotations

from reprieve.app import config, places
from reprieve.app.weaker import as_json, sentence
from reprieve.cli import humane
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Misconfigured, Refused, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace

SPEC = Command(
    "config",
    "Show settings with their origin, change one of yours, or accept weaker ones",
    (
        ("reprieve config set exclude 'node_modules/' '*.iso'", "leave these unprotected, everywhere"),
        ("reprieve config accept", "let weaker settings in this workspace's reprieve.toml take effect"),
    ),
    details=(
        "set and unset change your own configuration file. A workspace may have a reprieve.toml. Because an agent can "
        "edit it, a setting there that protects more takes effect at once. One that protects less, such as an exclude, "
        "has no effect until you accept it. Commands say so until then. What you accepted counts as long as the file "
        "asks for it; if the line goes away and comes back, accept it again. An agent can't accept. Without a "
        "terminal, accept needs --yes."
    ),
    arguments=(
        Argument("ACTION", "What to do; default: list", choices=("list", "get", "set", "unset", "path", "accept")),
        Argument("KEY", "The setting", complete="key"),
        Argument("VALUE", "Its new value; several for a list", is_many=True),
    ),
    options=(
        Option("--dry-run", "Show what accept would change and stop", short="-n"),
        Option("--yes", "Accept without asking", short="-y"),
    ),
    exit_codes=((3, "a setting or a configuration file is wrong"), (5, "not accepted")),
)
_SHOWN = 3  # files on a line


def run(args: Parsed, out: Terminal) -> int:
    action, name, values = args.text("ACTION", "list"), args.text("KEY"), args.many("VALUE")
    if action in ("get", "set", "unset") and not name:
        raise Usage(f"'config {action}' needs KEY", hints=["the settings are listed by: reprieve config"])
    if action != "accept" and (args.flag("dry-run") or args.flag("yes")):
        raise Usage("--dry-run and --yes are for 'config accept'")
    if (action in ("list", "path", "accept") and name) or (action in ("get", "unset") and values):
        raise Usage(f"'config {action}' does not take '{values[0] if values else name}'")
    if action == "path":
        out.answer(path=places.user_config())
        out.line(humane.safe(places.user_config()))
    elif action == "list":
        _list(args, out)
    elif action == "accept":
        _accept(args, out)
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
        unaccepted_settings=as_json(found.weaker),
    )
    for key, value, origin in rows:
        out.line(f"{key.name} = {humane.safe(_text(value))}  ({humane.safe(origin)})")
        out.say(f"    {key.summary}", "dim")
    out.say(f"Your configuration file: {humane.safe(places.user_config())}")
    for problem in found.problems:
        out.reporter.warn(problem)
    if found.weaker:
        out.reporter.warn(sentence(found.weaker))


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


def _accept(args: Parsed, out: Terminal) -> None:
    from reprieve.app.accepting import accept, soon_unprotected
    from reprieve.app.finding import open_workspace
    from reprieve.model.reporter import Reporter

    with open_workspace(args.start, reporter=Reporter()) as ws:  # silent: what it would warn of is shown here
        weaker = ws.config.weaker
        lost = soon_unprotected(ws)
        is_dry = args.flag("dry-run")
        for problem in ws.config.problems:
            out.reporter.warn(problem)
        if not weaker:
            out.answer(accepted_settings=[], unaccepted_settings=[], files=0, dry_run=is_dry)
            out.line("Nothing to accept: no setting in reprieve.toml waits for you.")
            return
        out.line("reprieve.toml asks for less protection:")
        for one in weaker:
            out.line(f"  {humane.safe(one.text)}")
        some = ", ".join(humane.path(path) for path in lost[:_SHOWN]) + (", …" if len(lost) > _SHOWN else "")
        out.line(f"{humane.count(len(lost), 'file')} would no longer be saved{f': {some}' if lost else ''}")
        out.answer(accepted_settings=[], unaccepted_settings=as_json(weaker), files=len(lost), dry_run=is_dry)
        if is_dry:
            out.line("Dry run. Nothing changed.")
            return
        _must_be_a_person(ws, args, out)
        accept(ws, weaker)
    out.answer(accepted_settings=as_json(weaker), unaccepted_settings=[])
    out.line("Accepted. It takes effect from the next checkpoint on; earlier checkpoints keep what they have.")
    out.say("To protect them again, remove the lines from reprieve.toml.")


def _must_be_a_person(ws: Workspace, args: Parsed, out: Terminal) -> None:
    """Raises Refused inside of an agent's processes, and without a yes."""
    from reprieve.app.persons import agent_above

    who = agent_above(ws)
    if who:
        raise Refused(
            f"this process belongs to {who}, and an agent can't accept weaker settings",
            hints=["run it in a terminal of your own: reprieve config accept"],
        )
    if args.flag("yes"):
        return
    if not out.is_interactive:
        raise Refused(
            "weaker settings need a person's answer; nothing was accepted",
            hints=["see what would change: reprieve config accept --dry-run", "without asking: --yes"],
        )
    if not out.confirm("Accept this?"):
        raise Refused("not accepted; nothing changed")


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
