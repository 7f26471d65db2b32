"""Read a command line into the simple commands it would run and say what the worst of them does. Pure.

The structure is tree-sitter's, the words are `words`', what a program does is the judges'. Anything that only a
running shell could know is opaque, as is anything the parser did not understand: a gate that guesses is none.

    text ─▶ tree ─▶ commands, with the folder and the variables at that point
                      └▶ wrapper?   what is inside is read the same way
                      └▶ program?   reads, filetools, clients, languages, then the catalog; else opaque
"""

from __future__ import annotations

from reprieve.policy.classes import OPAQUE, READ, rank
from reprieve.policy.filetools import links_made
from reprieve.policy.inside import MAX_DEPTH, Inside
from reprieve.policy.judge import judge_program
from reprieve.policy.places import Places
from reprieve.policy.printed import printed
from reprieve.policy.scene import (
    NO_INPUT,
    UNKNOWN_INPUT,
    Judgement,
    Scene,
    ShellReading,
    SimpleCommand,
    Stdin,
    opaque,
    reading_of,
    writes,
)
from reprieve.policy.state import State
from reprieve.policy.syntax import (
    WORDS,
    armoured,
    every,
    is_assignment,
    is_plain_sum,
    may_be_commands,
    names_any,
    parser,
    plain_again,
    runs_in_subscript,
    sets_any,
    touching,
)
from reprieve.policy.variables import LOADS, MOVES, SETS_VARIABLES, is_dangerous
from reprieve.policy.words import Word, expand, plain, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tree_sitter import Node

    from reprieve.policy.catalog import Catalog

MAX_TEXT = 64 * 1024
MAX_COMMANDS = 500
_UNROLL = 8  # values of a loop that are looked at one by one


def read_shell(
    text: str,
    *,
    root: str,
    cwd: str,
    catalog: Catalog,
    tracked: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    resolve: Callable[[str], str] | None = None,
    is_folder: Callable[[str], bool] | None = None,
) -> ShellReading:
    """The class of a command line that would run in `cwd`, for a workspace at `root`.

    `tracked`: paths outside of it that come back with a rollback too. `variables`: what is known of the environment.
    `resolve` follows links on disk; without it paths are compared as text. `is_folder` says if a `cd` will succeed.
    """
    places = Places(root, (cwd,), tuple(tracked), resolve, is_folder=is_folder)
    found = _read(text, places, variables or {}, catalog)
    made = links_made(one.argv for one in found.commands)
    # once more: a loop or a function may come to the link after it was made, wherever it stands in the text
    return _read(text, places.replace(made=made), variables or {}, catalog) if made else found


def _read(text: str, places: Places, variables: Mapping[str, str], catalog: Catalog) -> ShellReading:
    reader = _Reader(catalog)
    reader.text(text, State(places, dict(variables)), NO_INPUT, depth=0)
    return reader.result()


class _Reader:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.found: list[SimpleCommand] = []
        self.functions: set[str] = set()
        self.defining: list[str] = []
        self.aliases: dict[str, str] = {}
        self.parser = parser()
        self.source = b""
        self.moves_around = self.sets_around = False

    def result(self) -> ShellReading:
        if len(self.found) > MAX_COMMANDS:
            self.note((), opaque("more commands than anybody reads"))
        return reading_of(self.found)

    def note(
        self,
        argv: Sequence[str | None],
        found: Judgement,
        *,
        cwd: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        given = tuple((variables or {}).items())
        self.found.append(SimpleCommand(tuple(argv), found.cls, found.reason, found.rule, found.match, cwd, given))

    def text(self, text: str, state: State, stdin: Stdin, *, depth: int) -> None:
        """Read a script in a given state; the state is changed as the script would."""
        if depth > MAX_DEPTH or len(text) > MAX_TEXT or len(self.found) > MAX_COMMANDS:
            self.note((), opaque("too long or too deeply nested to be read"))
            return
        if any(ch in text for ch in "\x02\x03\r\0\x0b\x0c\x85\xa0\u2028\u2029\u200b\ufeff"):
            self.note((), opaque("holds characters that a shell and a reader may take differently"))
            return
        data = armoured(text)
        tree = self.parser.parse(data)
        if tree.root_node.has_error:
            self.note((), opaque("the shell's grammar does not explain it"))
            return
        outer, self.source = self.source, data
        around = self.moves_around, self.sets_around
        self.moves_around = self.moves_around or names_any(tree.root_node, data, MOVES)
        self.sets_around = self.sets_around or sets_any(tree.root_node, data)
        try:
            self._statements(tree.root_node, state, stdin, depth)
        finally:
            self.source, (self.moves_around, self.sets_around) = outer, around

    # -- statements

    def _statements(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        children = node.children
        for number, child in enumerate(children):
            is_background = number + 1 < len(children) and children[number + 1].type == "&"
            if child.is_named:
                self._statement(child, state.in_background() if is_background else state, stdin, depth)

    def _statement(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        kind = node.type
        if kind in ("comment", "heredoc_body", "heredoc_end"):
            return
        visit = getattr(self, f"_{kind}", None)
        if visit is not None:
            visit(node, state, stdin, depth)
        elif kind in ("do_group", "compound_statement", "program"):
            if node.children and node.children[0].type == "((":
                self._arithmetic(node, state, depth)
            else:
                self._statements(node, state, stdin, depth)
        else:
            self.note((), opaque(f"holds a {kind.replace('_', ' ')}"))

    def _list(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        """`a && b` and `a || b`: after `&&` the left side is done; after `||` either may be."""
        left, sign, right = node.children[0], node.children[1].type, node.children[-1]
        before = state.copy()
        self._sure = sign == "&&"
        self._statement(left, state, stdin, depth)
        self._sure = False
        if sign == "&&":
            self._statement(right, state, stdin, depth)
            if not is_assignment(left):
                state.merge(before)
        else:
            state.merge(before)
            other = state.copy()
            self._statement(right, other, stdin, depth)
            state.merge(other)

    _sure = False  # what runs next is followed by && (a `cd` there has succeeded when the rest runs)

    def _subshell(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._statements(node, state.copy(), stdin, depth)

    _negated_command = _statements

    def _pipeline(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._pipe([child for child in node.children if child.is_named], state, stdin, depth)

    def _pipe(self, parts: Sequence[Node], state: State, stdin: Stdin, depth: int) -> None:
        flowing = stdin
        for part in parts:
            inner = state.copy()
            if part.type == "pipeline":
                self._pipe([child for child in part.children if child.is_named], inner, flowing, depth)
                flowing = UNKNOWN_INPUT
                continue
            self._statement(part, inner, flowing, depth)
            flowing = self._output(part, state, flowing)

    def _output(self, node: Node, state: State, stdin: Stdin) -> Stdin:
        """What a command prints, where that is plain: `echo` and `printf` of known words, `cat` of a here-document."""
        if node.type == "redirected_statement":
            given = self._given(node, state)
            body = node.child_by_field_name("body")
            if given is None or body is None or body.type != "command":
                return UNKNOWN_INPUT
            words, _ = self._words_of(body, state)
            is_cat = len(words) == 1 and words[0].text == "cat"
            return given if is_cat and given.is_given else UNKNOWN_INPUT
        if node.type != "command":
            return UNKNOWN_INPUT
        words, _ = self._words_of(node, state)
        return printed(words, stdin)

    def _redirected_statement(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        body = node.child_by_field_name("body")
        given = self._given(node, state)
        extra: list[Node] = []
        after: list[Node] = []
        for child in node.children:
            if body is not None and child.id == body.id:
                continue
            self._redirect(child, state, depth, extra, after)
        inside = stdin if given is None else given
        if body is not None:
            if body.type == "command":
                self._run(body, state, inside, depth, extra=extra)
            else:
                if extra:
                    self.note((), opaque("words after a redirection"))
                self._statement(body, state, inside, depth)
        flowing = self._output(node, state, stdin) if after else inside
        for child in after:
            if child.type == "pipeline":
                self._pipe([one for one in child.children if one.is_named], state, flowing, depth)
            else:
                self._statement(child, state, UNKNOWN_INPUT if stdin.is_given else NO_INPUT, depth)

    def _redirect(self, node: Node, state: State, depth: int, extra: list[Node], after: list[Node]) -> None:
        """One redirection; words behind it go to `extra`, commands behind a here-document to `after`."""
        if node.type == "file_redirect":
            signs = [child.type for child in node.children if not child.is_named]
            targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
            extra += targets[1:]
            if not targets:
                return
            words = self._expand(targets[0], state, depth)
            sign = signs[0] if signs else ""
            if any((word.text or "").startswith(("/dev/tcp/", "/dev/udp/")) for word in words):
                self.note((), opaque("opens a connection"))
            is_number = sign == ">&" and words and (words[0].text or "").rstrip("-").isdigit()
            if is_number or sign in ("<", "<&", "<&-", ">&-"):
                return
            if sign in (">", ">>", ">|", "&>", "&>>", ">&"):
                for word in words or (Word(None),):
                    found = writes([word], Scene(state.places, self.catalog))
                    if rank(found.cls) > rank(READ):
                        self.note((sign, word.text), found)
                return
            self.note((), opaque(f"redirects with {sign or 'an unknown sign'}"))
        elif node.type == "heredoc_redirect":
            for child in node.children:
                if child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                    self._redirect(child, state, depth, extra, after)
                elif child.type in WORDS:
                    extra.append(child)
                elif child.type == "heredoc_body":
                    self._substitutions(child, state, depth)
                elif child.is_named and child.type not in ("heredoc_start", "heredoc_end", "file_descriptor"):
                    after.append(child)
        elif node.type == "herestring_redirect":
            self._substitutions(node, state, depth)
        elif node.is_named:
            self.note((), opaque(f"holds a {node.type.replace('_', ' ')}"))

    def _given(self, node: Node, state: State) -> Stdin | None:
        """What a redirection puts on the input of a command; None: it does not."""
        found: Stdin | None = None
        for child in node.children:
            if child.type == "heredoc_redirect":
                found = Stdin(True, self._heredoc(child, state))
            elif child.type == "herestring_redirect":
                texts = [word.text for word in expand(self._raw(child.children[-1]), state.variables).words]
                found = Stdin(True, None if None in texts else " ".join(text or "" for text in texts) + "\n")
            elif child.type == "file_redirect" and child.children and any(one.type == "<" for one in child.children):
                found = UNKNOWN_INPUT
        return found

    def _heredoc(self, node: Node, state: State) -> str | None:
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if start is None or body is None:
            return "" if start is not None else None
        text = self._raw(body)
        if any(child.type == "<<-" for child in node.children):
            text = "".join(line.lstrip("\t") for line in text.splitlines(keepends=True))
        if any(ch in self._raw(start) for ch in "'\"\\"):
            return text
        return quoted(text, state.variables)

    # -- compounds

    def _either(self, nodes: Iterable[Node], state: State, stdin: Stdin, depth: int) -> None:
        """Each may happen or not."""
        for node in nodes:
            other = state.copy()
            self._statement(node, other, stdin, depth)
            state.merge(other)

    def _if_statement(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._either((child for child in node.children if child.is_named), state, stdin, depth)

    _elif_clause = _else_clause = _if_statement

    def _while_statement(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._forget_assigned(node, state)
        self._either((child for child in node.children if child.is_named), state, stdin, depth)

    def _c_style_for_statement(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._forget_assigned(node, state)
        self._substitutions(node, state, depth, into=("do_group", "compound_statement"))
        bodies = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        self._either(bodies, state, stdin, depth)

    def _for_statement(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        names = [child for child in node.children if child.type == "variable_name"]
        bodies = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        values = [child for child in node.children if child.type in WORDS and child not in names[:1]]
        words: list[Word] = []
        for value in values:
            words += self._expand(value, state, depth)
        self._forget_assigned(node, state)
        name = self._raw(names[0]) if names else "?"
        choices: list[str | None] = [word.text for word in words]
        if node.children[0].type == "select" or not values or len(choices) > _UNROLL:
            choices = [None]
        for choice in dict.fromkeys(choices):
            other = state.copy()
            other.variables[name] = choice
            other.is_runnable = other.is_runnable and not name.isupper()
            for body in bodies:
                self._statement(body, other, stdin, depth)
            state.merge(other)

    def _case_statement(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        for child in node.children:
            if child.type == "case_item":
                self._either((child,), state, stdin, depth)
            elif child.is_named:
                self._substitutions(child, state, depth)

    def _case_item(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        is_body = False
        for child in node.children:
            if not child.is_named:
                is_body = is_body or child.type == ")"
            elif is_body:
                self._statement(child, state, stdin, depth)
            else:
                self._substitutions(child, state, depth)

    def _function_definition(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        """Its body counts where it is defined, with nothing known of the moment when it is called."""
        name = node.child_by_field_name("name")
        called = self._raw(name) if name is not None else "?"
        self.functions.add(called)
        self.defining.append(called)
        inner = state.copy()
        inner.forget()
        inner.is_runnable = inner.is_runnable and not self.sets_around
        if self.moves_around:
            inner.places = inner.places.replace(cwds=(None,))
        body = node.child_by_field_name("body")
        for child in node.children:
            if child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                self._redirect(child, inner, depth, [], [])
        if body is not None:
            self._statement(body, inner, UNKNOWN_INPUT, depth)
        if self.sets_around and body is not None and sets_any(body, self.source):
            state.is_runnable = False  # from the first call on
        self.defining.pop()

    def _test_command(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._substitutions(node, state, depth)
        if any(runs_in_subscript(self._raw(one)) for one in every(node, "raw_string")):
            self.note((), opaque("tests a name whose subscript is run"))

    def _arithmetic(self, node: Node, state: State, depth: int) -> None:
        """`((x += 1))`. Where it is not plainly a sum, other shells take the parentheses for two subshells."""
        self._substitutions(node, state, depth)
        if not is_plain_sum(self._raw(node)):
            self.note((), opaque("holds a sum that may be commands"))
        state.forget()

    # -- assignments

    def _variable_assignments(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        for child in node.children:
            if child.type == "variable_assignment":
                self._assign(child, state, depth)

    def _variable_assignment(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._assign(node, state, depth)

    def _declaration_command(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        is_plain, was_runnable, names = node.children[0].type == "export", state.is_runnable, list[str]()
        for child in node.children:
            if child.type == "variable_assignment":
                names.append(self._assign(child, state, depth))
            elif child.is_named and child.type != "variable_name":
                words = self._expand(child, state, depth)
                if any(word.text is None or "=" in word.text for word in words):
                    self.note((), opaque("sets variables that only the running shell knows"))
                is_plain = False
        state.is_runnable = is_plain and was_runnable
        state.export(names)

    def _unset_command(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._substitutions(node, state, depth)
        state.forget()
        text = self._raw(node)
        state.is_runnable = state.is_runnable and text.islower() and "$" not in text

    def _assign(self, node: Node, state: State, depth: int) -> str:
        name, _, value = self._raw(node).partition("=")
        is_added = name.endswith("+")
        name = name.rstrip("+")
        bare = name.partition("[")[0]
        # whether programs are told of it (which account, which server) depends on whether it was exported before
        state.is_runnable = state.is_runnable and not bare.isupper()
        if is_dangerous(bare):
            self.note((self._raw(node),), opaque(f"sets {bare}, which changes what programs do"))
        self._substitutions(node, state, depth)
        if is_added or "[" in name or value.startswith("("):
            state.variables[bare] = None
            return bare
        words = expand(value, state.variables, cwd=self._cwd(state)).words
        # an assignment does not split, and does not expand patterns
        state.variables[bare] = words[0].text if len(words) == 1 else "" if not words else None
        return bare

    def _forget_assigned(self, node: Node, state: State) -> None:
        """Before a loop: what its body assigns may have any value when the body begins again."""
        names = {
            self._raw(one).partition("=")[0].partition("[")[0].rstrip("+") for one in every(node, "variable_assignment")
        }
        state.forget(names)
        if names_any(node, self.source, SETS_VARIABLES) or every(node, "declaration_command"):
            state.forget()
        if names_any(node, self.source, MOVES):
            state.places = state.places.replace(cwds=tuple(dict.fromkeys((*state.places.cwds, None))))

    # -- commands

    def _command(self, node: Node, state: State, stdin: Stdin, depth: int) -> None:
        self._run(node, state, stdin, depth, extra=())

    def _run(self, node: Node, state: State, stdin: Stdin, depth: int, *, extra: Sequence[Node]) -> None:
        given = self._given(node, state)
        was_runnable, exported = state.is_runnable, state.exported
        own, names = state.copy(), list[str]()  # each assignment is seen by the next, and by none of the words
        for child in node.children:
            if child.type == "variable_assignment":
                names.append(self._assign(child, own, depth))
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                self._redirect(child, state, depth, [], [])
        words, is_sound = self._words_of(node, state, extra=extra, depth=depth)
        if not is_sound:
            self.note([word.text for word in words], opaque("holds a substitution that the parser did not see"))
            return
        if names:
            own.is_runnable = was_runnable
            own.export(names)
            state.is_runnable, state.exported = own.is_runnable, own.exported
        self._judge(words, state, stdin if given is None else given, depth)
        if names:
            is_kept = any(word.text in LOADS for word in words)  # some shells keep what stands before those
            state.is_runnable, state.exported = was_runnable and not is_kept, exported

    def _words_of(
        self, node: Node, state: State, *, extra: Sequence[Node] = (), depth: int | None = None
    ) -> tuple[list[Word], bool]:
        """The arguments of a command; with `depth`, what is substituted in them is read too."""
        words: list[Word] = []
        is_sound = True
        nodes = []
        for child in [*node.children, *extra]:
            if child.type == "command_name":
                nodes.append(child.children[0] if child.children else child)
            elif child.type in WORDS or (not child.is_named and child.type in ("==", "=~", "=", "!=", "$")):
                nodes.append(child)
        for group in touching(nodes):
            # the grammar parts 'r'\\m in two; to a shell it is one word
            raw = plain_again(self.source[group[0].start_byte : group[-1].end_byte])
            scan = expand(raw, state.variables, cwd=self._cwd(state))
            words += scan.words
            if depth is not None:
                seen = sum(self._substitutions(child, state, depth) for child in group)
                is_sound = is_sound and seen >= scan.substitutions
        return words, is_sound

    def _judge(self, words: Sequence[Word], state: State, stdin: Stdin, depth: int) -> None:
        """One argument list: a wrapper is opened, a program judged."""
        if not words:
            return
        name = words[0].text
        if name in MOVES and name is not None:
            self._move(name, words, state)
        elif name in self.functions:
            again = opaque(f"{name} calls itself") if name in self.defining else Judgement(READ)
            self.note([word.text for word in words], again)
        elif name in self.aliases and name is not None:
            self._aliased(self.aliases[name], words, state, stdin, depth)
        elif name == "alias":
            self._aliases(words, state, depth)
        else:
            if name in SETS_VARIABLES:
                state.forget([word.text for word in words[1:] if word.text is not None and word.text.isidentifier()])
                state.is_runnable = state.is_runnable and not any((word.text or "A").isupper() for word in words[1:])
            scene = Scene(state.places, self.catalog, stdin, state.launcher, state.is_runnable)
            noted = len(self.found)
            judge_program(words, scene, Inside(self, state, depth))
            if any(word.text in LOADS for word in words) and any(one.cls == OPAQUE for one in self.found[noted:]):
                state.is_runnable = False  # it may have set any variable

    def _move(self, name: str, words: Sequence[Word], state: State) -> None:
        operands = [word for word in words[1:] if word.text not in ("-P", "-L", "-e", "-@", "--", "-q", "-n")]
        target = operands[0] if operands else plain(state.variables.get("HOME", "/~") or "/~")
        if name == "popd" or (name == "pushd" and not operands):
            target = Word(None)
        state.places = state.places.moved(target, surely=self._sure)
        self.note([word.text for word in words], Judgement(READ))

    def _aliases(self, words: Sequence[Word], state: State, depth: int) -> None:
        for word in words[1:]:
            if word.text is None:
                self.note(("alias", None), opaque("defines an alias that only the running shell knows"))
                continue
            name, equals, value = word.text.partition("=")
            if equals:
                self.functions.discard(name)
                self.aliases[name] = value
                self.text(value, state.copy(), UNKNOWN_INPUT, depth=depth + 1)
        self.note([word.text for word in words], Judgement(READ))

    def _aliased(self, value: str, words: Sequence[Word], state: State, stdin: Stdin, depth: int) -> None:
        """An alias that is used: its words, then those of the call."""
        if depth > MAX_DEPTH or any(ch in value for ch in "|&;<>()$`\\\"'*?[#~{}\n"):
            why = f"uses the alias {words[0].text}, which can't be followed"
            self.note([word.text for word in words], opaque(why))
            return
        inner = [*map(plain, value.split()), *words[1:]]
        del self.aliases[words[0].text or ""]  # an alias is not expanded inside itself
        self._judge(inner, state, stdin, depth + 1)
        self.aliases[words[0].text or ""] = value

    # -- helpers

    def _raw(self, node: Node) -> str:
        return plain_again(self.source[node.start_byte : node.end_byte])

    def _cwd(self, state: State) -> str | None:
        return state.places.cwds[0] if len(state.places.cwds) == 1 and not state.places.is_remote else None

    def _expand(self, node: Node, state: State, depth: int) -> list[Word]:
        scan = expand(self._raw(node), state.variables, cwd=self._cwd(state))
        if self.source[node.end_byte : node.end_byte + 1] not in (b"", *(bytes((one,)) for one in b" \t\n;|&()<>`")):
            self.note((), opaque("holds a word that the parser cut in two"))
        if self._substitutions(node, state, depth) < scan.substitutions:
            self.note((), opaque("holds a substitution that the parser did not see"))
        return list(scan.words)

    def _substitutions(self, node: Node, state: State, depth: int, *, into: Sequence[str] = ()) -> int:
        """Read what `$(…)`, backticks and `<(…)` in a node would run; how many there are."""
        count = 0
        stack = [node]
        while stack:
            one = stack.pop()
            if one.type in into:
                continue
            if one.type in ("command_substitution", "process_substitution"):
                count += 1
                if depth > MAX_DEPTH:
                    self.note((), opaque("too deeply nested to be read"))
                    continue
                given = self._given(one, state)
                for child in one.children:
                    if child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                        self._redirect(child, state, depth, [], [])
                inner = state.copy()
                for child in one.children:
                    if child.is_named and not child.type.endswith("redirect"):
                        self._statement(child, inner, given or NO_INPUT, depth + 1)
                continue
            if one.type == "arithmetic_expansion" and may_be_commands(self._raw(one)):
                self.note((), opaque("holds a sum that may be commands"))
            stack += one.children
        return count
