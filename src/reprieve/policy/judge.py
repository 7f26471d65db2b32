"""Judge one argument list: open wrappers, ask the judges of programs in turn, call what nobody knows opaque. Pure."""

from __future__ import annotations

import posixpath

from reprieve.policy.classes import IRREVERSIBLE, READ, RESTORABLE, rank, worst
from reprieve.policy.scene import (
    HARMLESS,
    NO_INPUT,
    UNKNOWN_INPUT,
    Judgement,
    Scene,
    Stdin,
    opaque,
    removes,
    writes,
)
from reprieve.policy.syntax import runs_in_subscript
from reprieve.policy.unkept import WHY, needs_secret
from reprieve.policy.variables import is_dangerous
from reprieve.policy.words import Word
from reprieve.policy.wrappers import Inner, container_exec, unwrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from reprieve.policy.catalog import CommandMatch

    class Inside(Protocol):
        """How a judge reads on inside a wrapper."""

        def note(self, argv: Sequence[str | None], judgement: Judgement) -> None:
            """Write a judgement down."""

        def command(self, words: Sequence[Word], scene: Scene) -> None:
            """Read an argument list."""

        def text(self, text: str, scene: Scene, *, is_here: bool) -> None:
            """Read text for a shell."""


_FOLDERS = (
    "/bin",
    "/usr/bin",
    "/usr/local/bin",
    "/sbin",
    "/usr/sbin",
    "/usr/local/sbin",
    "/opt/homebrew/bin",
    "/usr/games",
)


# built into the shell, and taking names: the subscript of `a[$(…)]` is run even where the word is quoted
_EVALUATES = ("let", "test", "[", "read", "unset", "export", "readonly", "declare", "local", "typeset", "mapfile",
              "readarray", "getopts", "wait")  # fmt: skip


def judge_program(words: Sequence[Word], scene: Scene, inside: Inside) -> None:
    """Note what a program would do, or what the program inside it would."""
    argv = [word.text for word in words]
    if not words:
        inside.note((), HARMLESS)
        return
    first = words[0]
    if first.text is None or first.is_glob:
        inside.note(argv, opaque("runs a program that only the running shell knows"))
        return
    name = posixpath.basename(first.text)
    if "/" in first.text and posixpath.dirname(first.text) not in _FOLDERS:
        inside.note(argv, opaque(f"runs {first.text}, which nobody read"))
        return
    if name in ("source", ".") and len(words) > 1:
        inside.note(argv, opaque("runs a script that nobody read"))
        return
    if name == "find":
        _find(words, scene, inside)
        return
    inner = unwrap(name, words) or _by_container(name, words)
    if inner is not None:
        _open(name, words, inner, scene, inside)
        return
    inside.note(argv, judge_plain(name, words, scene))


def judge_plain(name: str, words: Sequence[Word], scene: Scene) -> Judgement:
    """A program that is no wrapper."""
    from reprieve.policy import archives, clients, filetools, languages, reads

    texts = [word.text or word.prefix for word in words[1:]]
    if name in _EVALUATES and any(map(runs_in_subscript, texts)):
        return opaque(f"{name} runs what stands in a subscript")
    if name == "printf":
        is_named = texts[:1] == ["-v"] and any(map(runs_in_subscript, texts[1:2]))
        return opaque("printf runs what stands in a subscript") if is_named else HARMLESS
    if (name == "compgen" and any(reads.given(text, ("-C", "-F", "-W")) for text in texts)) or (
        name in ("mapfile", "readarray") and any(reads.given(text, ("-C",)) for text in texts)
    ):
        return opaque(f"{name} runs a command")
    if name in ("export", "readonly", "declare", "local", "typeset", "unset", "read", "mapfile", "readarray",
    "getopts", "shopt",
                "disown", "bg", "fg", "enable", "complete", "bind", "dirs", "suspend", "logout",
                "compgen"):  # fmt: skip
        return opaque("loads code into the shell") if name == "enable" else HARMLESS
    for judge in (reads.judge_reader, filetools.judge_tool, archives.judge_archiver, clients.judge_server,
                  languages.judge_language):  # fmt: skip
        found = judge(name, words, scene)
        if found is not None:
            return found
    argv = [word.text for word in words]
    match = scene.catalog.match_command(argv, launcher=scene.launcher)
    if match is None:
        return opaque(f"{name} is not known")
    found = _by_rule(match, scene)
    if found.match is not None and needs_secret([text or "" for text in argv], scene.catalog):
        return found.replace(cls=worst(found.cls, IRREVERSIBLE), reason=f"{found.reason}; {WHY}")
    return found


def _by_rule(match: CommandMatch, scene: Scene) -> Judgement:
    """What a rule says. One about files where the program stands counts for more if that is in the workspace."""
    rule = match.rule
    reason = "" if rule.cls == READ else f"{rule.id}: {rule.note}" if rule.note else rule.id
    where = scene.places
    if "-C" in match.prefix:
        folder = match.prefix[match.prefix.index("-C") + 1]
        where = where.moved(Word(folder, folder), surely=True)
    if rule.files:
        place = writes([Word("\x01")], scene.replace(places=where))
        if rank(place.cls) <= rank(RESTORABLE):
            return Judgement(RESTORABLE if rank(rule.cls) >= rank(RESTORABLE) else rule.cls, reason, rule.id)
        if not rule.inverse:
            return Judgement(place.cls, f"{reason}, outside the workspace", rule.id)
    if not rule.inverse:
        return Judgement(rule.cls, reason, rule.id)
    if not scene.is_runnable:
        why = "in which account or as whom it runs is not known, so it has no inverse"
        return Judgement(worst(rule.cls, IRREVERSIBLE), f"{reason}; {why}", rule.id)
    if where.is_remote or not scene.places.here:
        # the rule's inverse would run here, not where this runs
        return Judgement(worst(rule.cls, IRREVERSIBLE), f"{reason}; its inverse can't be run from here", rule.id)
    return Judgement(rule.cls, reason, rule.id, match)


def _by_container(name: str, words: Sequence[Word]) -> Inner | None:
    texts = [word.text for word in words]
    if name in ("docker", "podman", "nerdctl"):
        at = 2 if texts[1:2] in (["container"], ["compose"]) else 1
        if texts[at : at + 1] == ["exec"]:
            return container_exec(words, skip=at)
    if name in ("kubectl", "oc") and "exec" in texts:
        at = texts.index("exec")
        if "--" in texts[at:] and all(text is not None and (text.startswith("-") or at > 0) for text in texts[1:at]):
            return Inner(commands=(tuple(words[texts.index("--", at) + 1 :]),), is_remote=True)
        return Inner(opaque="kubectl exec runs what can't be told from its options")
    return None


def _open(name: str, words: Sequence[Word], inner: Inner, scene: Scene, inside: Inside) -> None:
    argv = [word.text for word in words]
    if inner.opaque:
        inside.note(argv, opaque(inner.opaque))
        return
    for variable in inner.assigns:
        if is_dangerous(variable):
            inside.note(argv, opaque(f"sets {variable}, which changes what programs do"))
    if inner.is_nothing:
        inside.note(argv, HARMLESS)
        return
    places = scene.places
    if inner.is_remote:
        places = places.replace(is_remote=True, cwds=(None,))
    if inner.cwd is not None:
        places = places.moved(inner.cwd, surely=True)
    stdin = scene.stdin
    if name in ("xargs", "parallel"):
        stdin = NO_INPUT
        if (
            scene.stdin.names_in
            and name == "xargs"
            and any(text in ("-0", "--null", "-r0", "-0r") for text in argv[1:4])
        ):
            commands = inner.commands
            for start in scene.stdin.names_in:
                for command in commands:
                    filled = tuple(start if word.text is None and not word.prefix else word for word in command)
                    inside.command(filled, scene.replace(places=places, stdin=stdin))
            return
    launcher, is_runnable = _launcher(name, words, inner, scene)
    below = Scene(places, scene.catalog, stdin, launcher, is_runnable)
    if inner.stdin_is_script:
        _script_on_input(argv, name, below, inside)
    for command in inner.commands:
        inside.command(command, below)
    for text in inner.texts:
        inside.text(text, below, is_here=name in ("eval", "trap"))


def _launcher(name: str, words: Sequence[Word], inner: Inner, scene: Scene) -> tuple[tuple[str, ...], bool]:
    """How an inverse would have to be started: with the same sudo. Of what else changes the user it is not known."""
    if name in ("su", "runuser", "pkexec", "sg", "busybox", "toybox"):
        return scene.launcher, False
    if inner.assigns or name == "env":
        return scene.launcher, False
    if name not in ("sudo", "doas"):
        return scene.launcher, scene.is_runnable
    if not inner.commands:
        return scene.launcher, False
    before = [word.text for word in words[: len(words) - len(inner.commands[0])]]
    if any(text is None for text in before):
        return scene.launcher, False
    return (*scene.launcher, *(text or "" for text in before)), scene.is_runnable


def _script_on_input(argv: Sequence[str | None], name: str, scene: Scene, inside: Inside) -> None:
    given: Stdin = scene.stdin
    if not given.is_given:
        inside.note(argv, opaque(f"{name} waits for commands that nobody has read"))
    elif given.text is None:
        inside.note(argv, opaque(f"{name} runs what another program prints"))
    else:
        inside.text(given.text, scene.replace(stdin=UNKNOWN_INPUT), is_here=False)


def _find(words: Sequence[Word], scene: Scene, inside: Inside) -> None:
    from reprieve.policy.languages import FindCommand

    command = FindCommand(words)
    argv = [word.text for word in words]
    if command.unreadable:
        inside.note(argv, opaque(command.unreadable))
        return
    found = [command.found(start) for start in command.starts]
    if command.deletes:
        inside.note(argv, removes(found, scene))
    if command.files:
        inside.note(argv, writes(command.files, scene))
    for inner in command.commands:
        for place in found:
            inside.command([_filled(word, place) for word in inner], scene.replace(stdin=NO_INPUT))
    if not command.deletes and not command.files and not command.commands:
        inside.note(argv, HARMLESS)


def _filled(word: Word, place: Word) -> Word:
    if word.text == "{}":
        return place
    if word.text is not None and "{}" in word.text:
        return Word(None, word.text.partition("{}")[0])
    return word
