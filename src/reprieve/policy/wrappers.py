"""Find the command inside a command: sudo, env, timeout, xargs, sh -c, ssh, and the like. Pure.

`unwrap` says what is inside without judging it. An option that it does not know makes the wrapper unreadable.
"""

from __future__ import annotations

from reprieve.model.value import Value
from reprieve.policy.options import Parsed, parse, spec
from reprieve.policy.words import DYNAMIC, Word, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Unwrap = Callable[[Sequence[Word]], "Inner"]


class Inner(Value):
    """What a wrapper runs: an argument list, or text for a shell (each may be several), or a reason why nobody knows.

    `stdin_is_script`: a shell that reads its commands from its input. `is_nothing`: it runs no command at all.
    """

    commands: tuple[tuple[Word, ...], ...] = ()
    texts: tuple[str, ...] = ()
    opaque: str = ""
    is_remote: bool = False
    stdin_is_script: bool = False
    is_nothing: bool = False
    assigns: tuple[str, ...] = ()  # names of variables it sets for the command
    cwd: Word | None = None


SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish")
_NOTHING = Inner(is_nothing=True)


def unreadable(name: str) -> Inner:
    return Inner(opaque=f"the options of {name} can't be read")


def _joined(words: Sequence[Word]) -> str | None:
    """The words as a program that joins them with blanks hands them to a shell."""
    texts = [word.text for word in words]
    return None if any(text is None for text in texts) else " ".join(text or "" for text in texts)


def _text(words: Sequence[Word], name: str, **more: bool) -> Inner:
    joined = _joined(words)
    if joined is None:
        return Inner(opaque=f"{name} runs text that only the running shell knows")
    return Inner(texts=(joined,), is_remote=more.get("is_remote", False))


def _simple(known: str, values: str = "", *, operands: int = 0) -> Unwrap:
    """A wrapper with options, then that many operands of its own, then the command."""
    options = spec(known, values)

    def unwrap(words: Sequence[Word]) -> Inner:
        parsed = parse(words, options)
        if parsed is None:
            return unreadable(words[0].text or "a wrapper")
        rest = words[parsed.rest + operands :]
        if any(word.text is None for word in words[parsed.rest : parsed.rest + operands]):
            return unreadable(words[0].text or "a wrapper")
        return Inner(commands=(tuple(rest),)) if rest else _NOTHING

    return unwrap


def _assignments(words: Sequence[Word], at: int) -> tuple[int, tuple[str, ...]]:
    names = []
    while at < len(words):
        head, equals, _ = (words[at].prefix if words[at].text is None else words[at].text or "").partition("=")
        if not equals or not head.replace("_", "a").isalnum() or head[0].isdigit():
            break
        names.append(head)
        at += 1
    return at, tuple(names)


_SUDO = spec(
    "A b E H n P S k K B i s l v V e N login shell preserve-env non-interactive background stdin set-home"
    " reset-timestamp"
    " list validate version edit",
    "u g h p C r t T U D R a c user group host prompt close-from role type command-timeout other-user chdir chroot",
)  # fmt: skip


def _sudo(words: Sequence[Word]) -> Inner:
    parsed = parse(words, _SUDO)
    if parsed is None or parsed.has("-e", "--edit", "-R", "--chroot", "-D", "--chdir"):
        return unreadable("sudo")
    at, names = _assignments(words, parsed.rest)
    rest = words[at:]
    if not rest:
        is_shell = parsed.has("-i", "-s", "--login", "--shell")
        return Inner(stdin_is_script=True) if is_shell else _NOTHING
    if parsed.has("-i", "-s", "--login", "--shell"):
        return _text(rest, "sudo").replace(assigns=names)
    return Inner(commands=(tuple(rest),), assigns=names)


_ENV = spec("i 0 v ignore-environment null debug", "u C S unset chdir split-string")


def _env(words: Sequence[Word]) -> Inner:
    parsed = parse(words, _ENV)
    if parsed is None:
        return unreadable("env")
    rest = list(words[parsed.rest :])
    split = parsed.value("-S", "--split-string")
    if split is not None:
        text = split if isinstance(split, str) else split.text
        if text is None or any(ch in text for ch in "\\$'\""):
            return unreadable("env -S")
        rest = [*map(plain, text.split()), *rest]
    if rest and rest[0].text == "-":
        rest = rest[1:]
    at, names = _assignments(rest, 0)
    where = parsed.value("-C", "--chdir")
    cwd = plain(where) if isinstance(where, str) else where
    return Inner(commands=(tuple(rest[at:]),) if rest[at:] else (), assigns=names, cwd=cwd, is_nothing=not rest[at:])


_TIMEOUT = spec("foreground preserve-status v verbose", "s k signal kill-after")
_XARGS = spec(
    # the value of -i, -l, --replace and --max-lines is attached or left out: the next word is the program
    "0 r t p x o i l null no-run-if-empty verbose interactive exit open-tty replace max-lines",
    "a d E I L n P s arg-file delimiter max-args max-procs max-chars process-slot-var",
)
_PARALLEL = spec(
    "k X m q u 0 t keep-order quote ungroup null bar progress dry-run will-cite no-notice line-buffer lb group eta"
    " verbose",
    "j I N n L P d a jobs max-args max-procs delay halt retries timeout colsep delimiter arg-file joblog results"
    " tmpdir",
)  # fmt: skip


def _xargs(words: Sequence[Word]) -> Inner:
    parsed = parse(words, _XARGS)
    if parsed is None:
        return unreadable("xargs")
    inner = list(words[parsed.rest :]) or [plain("echo")]
    placeholder = parsed.value("-I", "--replace")
    if parsed.has("-i", "--replace") and placeholder is None:
        placeholder = "{}"
    if placeholder is None:
        return Inner(commands=((*inner, DYNAMIC),))
    mark = placeholder if isinstance(placeholder, str) else placeholder.text
    if not mark:
        return unreadable("xargs")
    return Inner(commands=(tuple(_filled(word, mark) for word in inner),))


def _filled(word: Word, mark: str) -> Word:
    if word.text is not None and mark in word.text:
        return Word(None, word.text.split(mark)[0])
    return word


def _parallel(words: Sequence[Word]) -> Inner:
    parsed = parse(words, _PARALLEL)
    if parsed is None:
        return unreadable("parallel")
    inner: list[Word] = []
    for word in words[parsed.rest :]:
        if word.text is not None and word.text.startswith(":::"):
            break
        inner.append(word)
    if not inner:
        return Inner(opaque="parallel runs what it is given as commands")
    if any(word.text is None or "{" in word.text or any(ch in word.text for ch in " ;|&$`<>") for word in inner):
        first = inner[0].text
        if first is None or any(ch in first for ch in "{ ;|&$`<>"):
            return Inner(opaque="parallel runs text that is put together at run time")
        if any(word.text is not None and any(ch in word.text for ch in " ;|&$`<>") for word in inner):
            return Inner(opaque="parallel runs text that is put together at run time")
        inner = [_filled(word, "{") for word in inner]
    return Inner(commands=((*inner, DYNAMIC),))


_SHELL = spec(
    "c l i e x u v n p r s f a b h k m t B C E H P T login norc noprofile posix restricted verbose noediting",
    "o O +o +O -rcfile -init-file",
)


def shell(words: Sequence[Word]) -> Inner:
    """`sh -c text`, `sh file`, `sh` with commands on its input."""
    name = words[0].text or "the shell"
    parsed = parse(words, _SHELL)
    if parsed is None or (parsed.has("--rcfile", "--init-file", "-i", "-l", "--login") and not parsed.has("-c")):
        return unreadable(name)
    if parsed.has("--rcfile", "--init-file"):
        return unreadable(name)
    rest = words[parsed.rest :]
    if parsed.has("-c"):
        if not rest or rest[0].text is None:
            return Inner(opaque=f"{name} -c runs text that only the running shell knows")
        return Inner(texts=(rest[0].text,))
    if rest and not parsed.has("-s") and rest[0].text not in ("-", "/dev/stdin"):
        return Inner(opaque=f"{name} runs a script that nobody read")
    return Inner(stdin_is_script=True)


_SSH = spec(
    "4 6 A a C f G g K k M N n q s T t V v X x Y y",
    "B b c D E e I i J L l m O p Q R S W w",
)


def _ssh(words: Sequence[Word]) -> Inner:
    # -o and -F can name programs that run here
    parsed = parse(words, _SSH)
    if parsed is None:
        return unreadable("ssh")
    rest = words[parsed.rest :]
    if parsed.has("-V", "-Q", "-G"):
        return _NOTHING
    if not rest or rest[0].text is None or rest[0].text.startswith("-"):
        return unreadable("ssh")
    after = parse(rest, _SSH)  # options may follow the host
    command = rest[after.rest :] if after is not None else rest[1:]
    if not command:
        return Inner(stdin_is_script=True, is_remote=True) if not parsed.has("-N") else Inner(opaque="ssh tunnels")
    return _text(command, "ssh", is_remote=True)


_DOCKER_EXEC = spec("d i t detach interactive tty privileged", "e u w env user workdir env-file detach-keys")


def container_exec(words: Sequence[Word], *, skip: int) -> Inner:
    """`docker exec [OPTIONS] CONTAINER COMMAND…`, from the word `exec` on at `skip`."""
    parsed = parse(words, _DOCKER_EXEC, start=skip + 1)
    if parsed is None:
        return unreadable("docker exec")
    command = words[parsed.rest + 1 :]
    return Inner(commands=(tuple(command),), is_remote=True) if command else unreadable("docker exec")


def _su(words: Sequence[Word]) -> Inner:
    texts = [word.text for word in words[1:]]
    for number, text in enumerate(texts):
        if text is None:
            return unreadable("su")
        if text in ("-c", "--command"):
            rest = words[number + 2 : number + 3]
            return _text(rest, "su") if rest else unreadable("su")
        if text.startswith("--command="):
            return Inner(texts=(text.partition("=")[2],))
        if text not in ("-", "-l", "--login", "-m", "-p") and text.startswith("-"):
            return unreadable("su")
    return Inner(stdin_is_script=True)


def _busybox(words: Sequence[Word]) -> Inner:
    return Inner(commands=(tuple(words[1:]),)) if len(words) > 1 else _NOTHING


def _command(words: Sequence[Word]) -> Inner:
    parsed = parse(words, spec("p v V"))
    if parsed is None:
        return unreadable("command")
    rest = words[parsed.rest :]
    return _NOTHING if parsed.has("-v", "-V") or not rest else Inner(commands=(tuple(rest),))


def _eval(words: Sequence[Word]) -> Inner:
    rest = words[1:] if len(words) < 2 or words[1].text != "--" else words[2:]
    return _text(rest, "eval") if rest else _NOTHING


def _trap(words: Sequence[Word]) -> Inner:
    if len(words) < 3 or words[1].text in ("-p", "-l", "-", ""):
        return _NOTHING
    return _text(words[1:2], "trap")


def _watch(words: Sequence[Word]) -> Inner:
    parsed = parse(
        words, spec("b c C d e g p t w x beep color differences errexit chgexit precise no-title exec", "n q interval")
    )
    if parsed is None:
        return unreadable("watch")
    rest = words[parsed.rest :]
    return Inner(commands=(tuple(rest),)) if parsed.has("-x", "--exec") else _text(rest, "watch")


def _flock(words: Sequence[Word]) -> Inner:
    parsed = parse(words, spec("s x e n u o F shared exclusive nonblock unlock close no-fork verbose", "w E timeout"))
    if parsed is None:
        return unreadable("flock")
    rest = words[parsed.rest + 1 :]
    if rest and rest[0].text in ("-c", "--command"):
        return _text(rest[1:2], "flock")
    return Inner(commands=(tuple(rest),)) if rest else _NOTHING


def _timed(words: Sequence[Word]) -> Inner:
    parsed = parse(words, spec("p v a q portability verbose append", "f format"))
    if parsed is None:
        return unreadable("time")
    rest = words[parsed.rest :]
    return Inner(commands=(tuple(rest),)) if rest else _NOTHING


def _exec(words: Sequence[Word]) -> Inner:
    parsed = parse(words, spec("c l", "a"))
    if parsed is None:
        return unreadable("exec")
    rest = words[parsed.rest :]
    return Inner(commands=(tuple(rest),)) if rest else _NOTHING


def _nice(words: Sequence[Word]) -> Inner:
    if len(words) > 1 and (words[1].text or "")[:1] == "-" and (words[1].text or "")[1:].lstrip("-").isdigit():
        return Inner(commands=(tuple(words[2:]),)) if words[2:] else _NOTHING
    return _simple("", "n adjustment")(words)


def _script(words: Sequence[Word]) -> Inner:
    return Inner(opaque=f"{words[0].text} runs commands that can't be followed")


_UNWRAP: dict[str, Unwrap] = {
    "sudo": _sudo, "doas": _simple("n s", "u C"), "env": _env, "nice": _nice, "nohup": _simple(""),
    "ionice": _simple("t ignore", "c n class classdata"), "setsid": _simple("c f w ctty fork wait"),
    "stdbuf": _simple("", "i o e input output error"),
    "timeout": lambda words: _timeout(words), "time": _timed, "command": _command,
    "builtin": _simple(""), "exec": _exec, "coproc": _simple(""), "busybox": _busybox, "toybox": _busybox,
    "xargs": _xargs, "parallel": _parallel, "eval": _eval, "trap": _trap, "ssh": _ssh, "su": _su, "runuser": _su,
    "watch": _watch, "flock": _flock, "taskset": _simple("a p c", "", operands=1),
    "chrt": _simple("b f i o r a v", "", operands=1), "catchsegv": _simple(""), "unbuffer": _simple("p"),
    "caffeinate": _simple("d i m s u", "t w"), "chronic": _simple("v e"), "chroot": _script, "nsenter": _script,
    "unshare": _script, "script": _script, "at": _script, "batch": _script, "screen": _script, "tmux": _script,
    "expect": _script, "start-stop-daemon": _script, "systemd-run": _script, "bwrap": _script, "firejail": _script,
    "pkexec": _simple("", "user"), "ltrace": _script, "strace": _script, "gdb": _script, "valgrind": _script,
    "osascript": _script, "proxychains": _simple("q", "f"), "torsocks": _simple(""), "sg": _script, "setpriv": _script,
    "capsh": _script, "runcon": _script, "logsave": _script, "rlwrap": _script, "dbus-run-session": _script,
    "xvfb-run": _script, "faketime": _script, "entr": _script, "nix-shell": _script, "rsh": _script, "mosh": _script,
}  # fmt: skip


def _timeout(words: Sequence[Word]) -> Inner:
    parsed: Parsed | None = parse(words, _TIMEOUT)
    if parsed is None or parsed.rest >= len(words) or words[parsed.rest].text is None:
        return unreadable("timeout")
    rest = words[parsed.rest + 1 :]
    return Inner(commands=(tuple(rest),)) if rest else _NOTHING


def unwrap(name: str, words: Sequence[Word]) -> Inner | None:
    """What is inside, or None if this program is no wrapper. `name` is the program without its folder."""
    if name in SHELLS:
        return shell(words)
    known = _UNWRAP.get(name)
    return known(words) if known is not None else None
