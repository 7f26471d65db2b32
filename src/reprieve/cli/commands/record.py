"""`reprieve record`: note an effect, with what reverses it."""

from __future__ import annotations

import os

from reprieve.app import effects
from reprieve.cli import opening
from reprieve.cli.show_effects import one_line
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.terminal import Terminal
from reprieve.errors import Usage

SPEC = Command(
    "record",
    "Note an effect outside of the folder, with what reverses it",
    (
        (
            "reprieve record http --method POST --url https://h/vms --undo-method DELETE --undo-url https://h/vms/7",
            "a request, and the one that reverses it",
        ),
        ("reprieve record command --description 'made a branch' -- git branch -D topic", "a reversing command"),
    ),
    details=(
        "The reversal is run by `rollback` or `compensate`, once, newest effect first. A command is an argument list "
        "and is never given to a shell; the program is looked up now. If it, or a script that an interpreter is given, "
        "lies in the folder, it is run only while it is still the same. Header values by reference (env:VARIABLE, "
        "keyring:SERVICE/USER, after a word such as Bearer if need be): the journal never holds a credential. "
        "{response.NAME} in the undo's URL and body is filled in from --response."
    ),
    arguments=(Argument("KIND", "What it was: http or command", is_required=True, choices=("http", "command")),),
    trailing=Argument("ARGV", "The program that reverses it, with its arguments (command)", is_many=True),
    options=(
        Option("--description", "What was done, for people", metavar="TEXT"),
        Option("--resource", "What it changed; effects on one thing are undone in order", metavar="NAME"),
        Option("--depends", "What it needs; that is not undone before this one is", metavar="NAME", is_many=True),
        Option("--method", "Method of the request (http)", metavar="METHOD"),
        Option("--url", "Where it went (http)", metavar="URL"),
        Option("--response", "What it answered, as JSON (http)", metavar="JSON"),
        Option("--undo-method", "Method that reverses it (http)", metavar="METHOD"),
        Option("--undo-url", "Where that goes, the same host (http)", metavar="URL"),
        Option("--undo-json", "Its body as JSON (http)", metavar="JSON"),
        Option("--undo-form", "A field of its body as a form (http)", metavar="NAME=VALUE", is_many=True),
        Option("--undo-body", "A file with its body as text (http)", metavar="FILE", complete="path"),
        Option("--undo-header", "A header of it, credentials by reference (http)", metavar="HEADER", is_many=True),
        Option("--undo-idempotent", "The undo may be sent again when nobody knows whether it arrived"),
        Option("--undo-gone-is-done", "Take 404 or 410 to the undo as done: it was seen at that very URL (http)"),
        Option("--cwd", "The folder to run it in (command)", metavar="DIR", complete="path", default="here"),
        Option("--env", "A variable that it needs, by name (command)", metavar="NAME", is_many=True),
    ),
)
_HTTP = ("method", "url", "response", "undo-method", "undo-url", "undo-json", "undo-form", "undo-body", "undo-header",
         "undo-gone-is-done")  # fmt: skip


def run(args: Parsed, out: Terminal) -> int:
    is_http = args.text("KIND") == "http"
    if is_http and (args.many("ARGV") or args.maybe("cwd") or args.many("env")):
        raise Usage("'record http' takes no command", hints=["reprieve record command --description D -- ARGV…"])
    if not is_http and (wrong := [name for name in _HTTP if args.many(name) or args.flag(name)]):
        raise Usage(f"'record command' takes no --{wrong[0]}")
    with opening.workspace(args, out, create=True) as ws:
        if is_http:
            effect = effects.record_http(
                ws,
                method=_needed(args, "method"),
                url=_needed(args, "url"),
                undo=_undo(args),
                response=_json(args.maybe("response"), "response"),
                description=args.text("description"),
                resource=args.text("resource"),
                depends=args.many("depends"),
            )
        else:
            if not args.many("ARGV"):
                raise Usage("'record command' needs the command that reverses", hints=["it goes after '--'"])
            effect = effects.record_command(
                ws,
                _argv(args),
                description=_needed(args, "description"),
                cwd=os.path.join(args.start, args.text("cwd", ".")),
                env=args.many("env"),
                resource=args.text("resource"),
                depends=args.many("depends"),
                is_idempotent=args.flag("undo-idempotent"),
            )
        shown = effects.json_of(effect)
        out.answer(effect=shown)
        out.line(f"Recorded {one_line(shown)}")
        out.say(f"See it whole: reprieve show {effect.id}")
    return 0


def _undo(args: Parsed) -> dict[str, object] | None:
    if not (args.maybe("undo-method") and args.maybe("undo-url")):
        given = [name for name in _HTTP if name.startswith("undo-") and (args.many(name) or args.flag(name))]
        if given:
            raise Usage("an undo needs both --undo-method and --undo-url")
        return None
    bodies = [name for name in ("undo-json", "undo-form", "undo-body") if args.many(name)]
    if len(bodies) > 1:
        raise Usage(f"--{bodies[0]} and --{bodies[1]} are two bodies; choose one")
    undo: dict[str, object] = {"method": args.text("undo-method"), "url": args.text("undo-url")}
    headers = {}
    for header in args.many("undo-header"):
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise Usage(f"'{header}' is no header", hints=["'Name: value'"])
        headers[name.strip()] = value.strip()
    undo["headers"] = headers
    if args.maybe("undo-json") is not None:
        undo["json"] = _json(args.text("undo-json"), "undo-json")
    if args.many("undo-form"):
        form: dict[str, str] = {}
        for field in args.many("undo-form"):
            name, equals, value = field.partition("=")
            if not equals or not name or name in form:
                raise Usage(f"'{field}' is no field of a form", hints=["NAME=VALUE, each name once"])
            form[name] = value
        undo["form"] = form
    if args.maybe("undo-body"):
        try:
            with open(os.path.join(args.start, args.text("undo-body")), encoding="utf-8") as file:
                undo["text"] = file.read()
        except (OSError, UnicodeDecodeError) as e:
            raise Usage(f"cannot read '{args.text('undo-body')}' as text: {e}") from e
    if args.flag("undo-idempotent"):
        undo["is_idempotent"] = True
    if args.flag("undo-gone-is-done"):
        undo["is_gone_done"] = True
    return undo


def _argv(args: Parsed) -> list[str]:
    """The command; a path to its program is from where the command line works."""
    program, *rest = args.many("ARGV")
    return [os.path.join(args.start, program) if "/" in program and args.text("directory") else program, *rest]


def _needed(args: Parsed, name: str) -> str:
    if not args.text(name).strip():
        raise Usage(f"'record {args.text('KIND')}' needs --{name}", hints=["see: reprieve record --help"])
    return args.text(name)


def _json(text: str | None, name: str) -> object:
    import json

    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as e:
        raise Usage(f"--{name} is not JSON: {e}") from e
