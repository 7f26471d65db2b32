"""The values of the catalog and how a command or request finds its rule. Pure."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit

from reprieve.model.value import Value
from reprieve.policy.classes import IRREVERSIBLE, READ, rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BEFORE, AFTER, BOTH = "before", "after", "both"


class Capture(Value):
    """A command whose output is kept before or after the forward one, or both: then it is a look.

    `is_optional`: failing means "not there".
    """

    name: str
    run: tuple[str, ...]
    when: str = BEFORE
    take: str = "text"  # text, raw, word, lines
    find: str = ""  # a pattern whose group 1 is the value (of each line, with `lines`)
    json: str = ""  # $.path.to.it
    drop: str = ""  # a pattern; lines that it is found in are left out
    is_optional: bool = False
    absent: str = ""  # a pattern; a failure whose exit code and output it is found in means "not there"
    must: str = ""  # a pattern that the value must match, else there is no inverse


class Step(Value):
    """One command of an inverse: an argument list, what it reads, and which values must or must not be there."""

    argv: tuple[str, ...]
    stdin: str = ""
    when: tuple[tuple[str, str], ...] = ()  # (value, "present" | "absent" | "changed" | "=text" | "!text")


class CommandRule(Value):
    """A forward command, its class, and how it is taken back."""

    id: str
    program: str
    sub: tuple[str, ...] = ()
    cls: str = IRREVERSIBLE
    note: str = ""
    files: bool = False  # it changes files where it stands; they come back with the workspace
    flags: tuple[str, ...] = ()  # at least one of these
    no_flags: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()  # flags that change nothing for the rule
    values: tuple[str, ...] = ()  # options with a value
    args: tuple[str, ...] | None = None  # None: any
    where: tuple[tuple[str, str], ...] = ()  # argument or option → pattern
    capture: tuple[Capture, ...] = ()
    inverse: tuple[Step, ...] = ()
    settle_s: int = 0  # how long the world may take until it is as before
    window: str = ""
    tested: bool = False
    provider: str = ""
    is_idempotent: bool = False  # the inverse may be run twice
    is_ambiguous: bool = False  # another program of that name may have run: looks that see no change prove nothing


class AccountFile(Value):
    """A file or folder that says which account a program uses. `take`: how it is read (`effects.account_files`)."""

    path: str  # ${NAME:-default} stands for a variable or an option; ./ is where the program runs
    take: str = "text"
    by: tuple[str, ...] = ()  # options and variables that say which part of it counts


class Account(Value):
    """What selects the account, server or project that a program acts on. Names may end with *."""

    variables: tuple[str, ...] = ()  # kept as they are, and set again for the inverse
    secrets: tuple[str, ...] = ()  # kept by their fingerprint
    never: tuple[str, ...] = ()  # not passed on to an inverse: with one of them set there is none
    files: tuple[AccountFile, ...] = ()
    switches: tuple[tuple[str, ...], ...] = ()  # sub-commands that change the files themselves
    none: str = ""  # why nothing selects an account


class Program(Value):
    """What is common to all commands of a program."""

    name: str
    also: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # global options before the sub-command
    values: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()  # options with a value that every command of the inverse gets too
    carry_flags: tuple[str, ...] = ()
    is_single_dash: bool = False  # -auto-approve is one option, not a cluster
    account: Account | None = None  # None: not declared, so its rules have no inverse


class CommandMatch(Value):
    """A command and its rule. `items`: the values by name, once for each thing the command names."""

    rule: CommandRule
    prefix: tuple[str, ...]  # how the program was started, with its global options
    carried: tuple[str, ...] = ()
    items: tuple[tuple[tuple[str, str | tuple[str, ...]], ...], ...] = ()
    account: Account | None = None


class HttpInverse(Value):
    """The request that reverses another, at the same origin. Values are put in by name, never as text of a URL."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    form: tuple[tuple[str, object], ...] = ()
    json: tuple[tuple[str, object], ...] | None = None


class HttpRule(Value):
    """A forward request, its class, and how it is taken back."""

    id: str
    hosts: tuple[str, ...]
    methods: tuple[str, ...]
    path: str
    cls: str = IRREVERSIBLE
    note: str = ""
    request: tuple[tuple[str, str], ...] = ()  # name → $.path in the request's body
    response: tuple[tuple[str, str], ...] = ()
    before: str = ""  # path of a GET whose answer is the before-image
    inverse: HttpInverse | None = None
    verify: str = ""  # path of a GET that shows whether it happened
    gone: tuple[int, ...] = ()  # answers of the inverse that mean: it was already taken back
    idempotency: str = ""  # header that makes a repeat harmless
    idempotency_window: str = ""
    window: str = ""
    redact: tuple[str, ...] = ()
    tested: bool = False
    provider: str = ""


class HttpMatch(Value):
    """A request and its rule, with what the path holds and the origin an inverse has to go to."""

    rule: HttpRule
    origin: str
    captured: tuple[tuple[str, str], ...] = ()


class ToolRule(Value):
    """Tools of an MCP server that a person starts by one of these names, their class, and how a call is taken back."""

    id: str
    servers: tuple[str, ...]  # names of its program or package
    tools: tuple[str, ...]
    cls: str = IRREVERSIBLE
    note: str = ""
    # where the paths of all files that it changes are: an argument, one with /.git after it, an option of the server's
    # own command (--db-path), or one of its variables (env:NAME)
    files: tuple[str, ...] = ()
    inverse: str = ""  # the tool that takes it back
    arguments: tuple[tuple[str, object], ...] = ()  # for that tool: {response.NAME} and {arguments.NAME} are filled in
    variables: tuple[str, ...] = ()  # that the server must be started with to be the same one
    is_idempotent: bool = False  # the inverse may be sent twice
    tested: bool = False
    provider: str = ""
    sql: str = ""  # the argument that holds a statement, which may name yet another file


class Look(Value):
    """A look at what the command changed, ready to run, with the values from before and after it."""

    capture: Capture
    before: str | tuple[str, ...]
    after: str | tuple[str, ...]


class Inverse(Value):
    """What takes a command back: argument lists with their input, in order; none if the looks saw no change."""

    rule: str
    steps: tuple[Step, ...]
    looks: tuple[Look, ...] = ()


class InverseRequest(Value):
    """What takes a request back."""

    rule: str
    method: str
    url: str
    form: tuple[tuple[str, str], ...] = ()
    json: object = None
    idempotency: str = ""


class Catalog(Value):
    """All rules. Rules of the user's come first, then the shipped ones in their order."""

    programs: tuple[Program, ...]
    commands: tuple[CommandRule, ...]
    requests: tuple[HttpRule, ...]
    tools: tuple[ToolRule, ...] = ()

    def match_tool(self, servers: Sequence[str], tool: str) -> ToolRule | None:
        """The rule for a tool of a server that goes by one of these names; None if there is none."""
        for rule in self.tools:
            if tool in rule.tools and any(name in rule.servers for name in servers):
                return rule
        return None

    def match_command(self, argv: Sequence[str | None], *, launcher: Sequence[str] = ()) -> CommandMatch | None:
        """The rule for a command; None where an argument is not known. `launcher`: words before it (sudo).

        The worst of the rules that fit with the same certainty is not guessed: the first one that fits counts.
        """
        if not argv or argv[0] is None:
            return None
        name = posixpath.basename(argv[0])
        for program in self.programs:
            if name == program.name or name in program.also:
                found = self._match(program, argv, tuple(launcher))
                if found is not None:
                    return found
        return None

    def _match(self, program: Program, argv: Sequence[str | None], launcher: tuple[str, ...]) -> CommandMatch | None:
        at, globals_ = 1, []
        while at < len(argv):
            text = argv[at]
            if text is None or not text.startswith("-"):
                break
            option = text.partition("=")[0]
            if text in program.flags or (option in program.values and "=" in text):
                globals_.append(text)
                at += 1
            elif text in program.values:
                value = argv[at + 1] if at + 1 < len(argv) else None
                if value is None:
                    return None
                globals_ += [text, value]
                at += 2
            else:
                break
        rest = argv[at:]
        for rule in self.commands:
            if rule.program == program.name and tuple(rest[: len(rule.sub)]) == rule.sub:
                found = _fit(rule, program, rest[len(rule.sub) :])
                if found is not None:
                    prefix = (*launcher, argv[0] or "", *globals_)
                    return CommandMatch(found[0], prefix, found[1], found[2], self._account(program))
        return None

    def _account(self, program: Program) -> Account | None:
        """Who adds to a program need not declare its account again."""
        known = (one.account for one in self.programs if one.name == program.name and one.account is not None)
        return next(known, None)

    def match_http(self, method: str, url: str) -> HttpMatch | None:
        """The rule for a request; None if there is none."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return None
        if parts.scheme not in ("http", "https"):
            return None
        origin = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
        path = parts.path or "/"
        for rule in self.requests:
            if method.upper() in rule.methods and any(_is_host(host, pattern) for pattern in rule.hosts):
                found = re.fullmatch(rule.path, path)
                if found is not None:
                    values = tuple((k, unquote(v)) for k, v in found.groupdict().items() if v is not None)
                    return HttpMatch(rule, origin, values)
        return None


def _is_host(host: str, pattern: str) -> bool:
    """`*.` stands for one or more labels."""
    host = host.lower().rstrip(".")
    return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1 if pattern.startswith("*.") else host == pattern


class _Options:
    def __init__(self) -> None:
        self.flags: list[str] = []
        self.values: dict[str, str | None] = {}
        self.operands: list[str | None] = []
        self.unknown: list[str | None] = []
        self.carried: list[str] = []


def _fit(
    rule: CommandRule, program: Program, rest: Sequence[str | None]
) -> tuple[CommandRule, tuple[str, ...], tuple[tuple[tuple[str, str | tuple[str, ...]], ...], ...]] | None:
    """The rule as it applies, or None. A rule whose command can't be read whole loses its inverse and its low class."""
    options = _sort(rule, program, rest)
    if rule.no_flags and (
        any(_gives(flag, rule.no_flags, program) for flag in [*options.flags, *options.values])
        or any(unknown is None or _gives(unknown, rule.no_flags, program) for unknown in options.unknown)
    ):
        return None
    if rule.flags and not any(_gives(flag, rule.flags, program) for flag in [*options.flags, *options.values]):
        return None
    if rule.cls == READ and rule.flags and options.unknown:
        return None  # an option that is not known may take the one that makes it harmless as its value
    bound = _bind(rule, options.operands)
    if bound is None:
        return None
    common: dict[str, str | tuple[str, ...]] = {}
    is_sure = True
    for name, given in options.values.items():
        if given is None:
            is_sure = False
        else:
            common[f"opt.{name.lstrip('-')}"] = given
    for item in bound:
        for key, pattern in rule.where:
            value: str | tuple[str, ...] | None = item.get(key) if key in item else common.get(key)
            if isinstance(value, tuple):
                if not value or any(re.search(pattern, one) is None for one in value):
                    return None
                continue
            if not isinstance(value, str):
                if value is None and rank(rule.cls) > rank(READ) and key in item:
                    is_sure = False
                    continue
                return None
            fits = re.search(pattern, value)
            if fits is None:
                return None
            item.update(fits.groupdict(""))
    is_sure = is_sure and all(value is not None for item in bound for value in item.values())
    if rule.cls == READ:
        return rule, (), ()
    if options.unknown or not is_sure:
        what = next((one for one in options.unknown if one is not None), None)
        why = f"the rule does not know {what}" if what else "only the running shell knows what it names"
        raised = rule.cls if rank(rule.cls) > rank(IRREVERSIBLE) else IRREVERSIBLE
        return rule.replace(cls=raised, note=why, capture=(), inverse=(), files=False), (), ()
    items = tuple(
        tuple({**common, **{key: value for key, value in item.items() if value is not None}}.items()) for item in bound
    )
    return rule, tuple(options.carried), items


def _sort(rule: CommandRule, program: Program, rest: Sequence[str | None]) -> _Options:
    found = _Options()
    known_flags = (*rule.flags, *rule.allow, *program.carry_flags)
    valued = (*rule.values, *program.carry)
    at, is_over = 0, False
    while at < len(rest):
        text = rest[at]
        at += 1
        if text is None or is_over or not text.startswith("-") or text == "-":
            found.operands.append(text)
            continue
        if text == "--":
            is_over = True
            continue
        name, equals, value = text.partition("=")
        if equals and name in valued:
            found.values[name] = value
            found.carried += [text] if name in program.carry else []
        elif text in valued:
            given = rest[at] if at < len(rest) else None
            at += 1
            found.values[text] = given
            if text in program.carry and given is not None:
                found.carried += [text, given]
        elif text in known_flags or (equals and name in known_flags):
            found.flags.append(name)
            found.carried += [text] if text in program.carry_flags else []
        elif not program.is_single_dash and (cluster := _cluster(text, known_flags, valued)) is not None:
            letters, option, attached = cluster
            found.flags += letters
            if option:
                given = attached or (rest[at] if at < len(rest) else None)
                at += 0 if attached else 1
                found.values[option] = given
                if option in program.carry and given is not None:
                    found.carried += [option, given]
        elif rule.cls == READ and not rule.flags:
            found.flags.append(text)
        else:
            found.unknown.append(text)
    if rule.cls == READ and rule.no_flags and None in found.operands:
        found.unknown.append(None)
    return found


def _cluster(text: str, flags: Sequence[str], valued: Sequence[str]) -> tuple[list[str], str, str] | None:
    """`-am` as its flags, the option with a value that ends it, and what is attached to that; None: no cluster."""
    if text.startswith("--") or len(text) < 3:
        return None
    letters: list[str] = []
    for number, letter in enumerate(text[1:], 1):
        if f"-{letter}" in valued:
            return letters, f"-{letter}", text[number + 1 :]
        if f"-{letter}" not in flags:
            return None
        letters.append(f"-{letter}")
    return letters, "", ""


def _gives(text: str, options: Sequence[str], program: Program) -> bool:
    name = text.partition("=")[0]
    if name in options:
        return True
    if text.startswith("--"):
        # a long option may be shortened as long as it is clear
        return len(name) > 3 and any(option.startswith(name) for option in options if option.startswith("--"))
    if program.is_single_dash or not text.startswith("-"):
        return False
    return any(len(option) == 2 and option[1] in text[1:] for option in options if option.startswith("-"))


def _bind(rule: CommandRule, operands: Sequence[str | None]) -> list[dict[str, str | tuple[str, ...] | None]] | None:
    """Names for the operands: `name`, `name?` (may be left out), `name+` (one item each), `name*` (all the rest)."""
    if rule.args is None:
        return [{}]
    item: dict[str, str | tuple[str, ...] | None] = {}
    each: tuple[str, list[str | None]] | None = None
    left = list(operands)
    after = 0
    for number, arg in enumerate(rule.args):
        after = sum(1 for later in rule.args[number + 1 :] if later[-1] not in "?*")
        if arg.endswith("*"):
            taken, left = left[: len(left) - after], left[len(left) - after :]
            if any(value is None for value in taken):
                item[arg[:-1]] = None
            else:
                item[arg[:-1]] = tuple(value or "" for value in taken)
        elif arg.endswith("+"):
            taken, left = left[: len(left) - after], left[len(left) - after :]
            if not taken:
                return None
            each = (arg[:-1], taken)
        elif arg.endswith("?"):
            if len(left) > after:
                item[arg[:-1]] = left.pop(0)
        elif left:
            item[arg] = left.pop(0)
        else:
            return None
    if left:
        return None
    if each is None:
        return [item]
    return [{**item, each[0]: value} for value in each[1]]


def by_id(catalog: Catalog) -> Mapping[str, CommandRule | HttpRule | ToolRule]:
    """All rules by their id."""
    found: dict[str, CommandRule | HttpRule | ToolRule] = {rule.id: rule for rule in catalog.commands}
    found |= {rule.id: rule for rule in catalog.requests}
    found |= {rule.id: rule for rule in catalog.tools}
    return found
