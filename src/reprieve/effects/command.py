"""Undo by a command: an argument list that was frozen when the effect was recorded, run without a shell.

    inverse = {"kind": "command", "steps": [{"argv": [...], "stdin": ""}], "cwd": ..., "env": [names], "timeout_s": 60,
               "is_idempotent": false, "looks": [...], "settle_s": 0, "scripts": [{"path": ..., "sha256": ...}],
               "account": as in effects.account}

The program gets a small environment of its own, no standard input, a time limit and a limit for what it prints; when
it ends its whole process group is ended with it. Before it is started the looks must show the world as the effect left
it, and after it they must show the world as before the effect: only then is the effect undone. Without looks, a command
that fails may have done its work before: it is run again only if `is_idempotent`, else a person has to look.
"""

from __future__ import annotations

import os

from reprieve.effects import account as accounts
from reprieve.effects import looks, scripts
from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.errors import Refused, Usage
from reprieve.model.effect import FAILED, MANUAL, UNDONE, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reprieve.model.effect import Effect, Json

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT_S = 60
MOST_OUTPUT = 1 << 20
_SHOWN = 2000
_PASSED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
_NEVER = ("PATH", "ENV", "BASH_ENV", "IFS", "SHELLOPTS")  # names an allow-list cannot name
_NEVER_BEGIN = ("LD_", "DYLD_", "PYTHON", "GIT_", "PERL", "RUBY", "NODE_", "JAVA_", "BASH_FUNC_")


def inverse_of(
    *commands: Sequence[str],
    cwd: str,
    stdin: Sequence[str] = (),
    env: Sequence[str] = (),
    timeout_s: int = TIMEOUT_S,
    is_idempotent: bool = False,
    seen: Sequence[Json] = (),
    settle_s: int = 0,
    within: Sequence[str] = (),
    account: Json | None = None,
) -> Json:
    """The frozen inverse: commands that are run one after the other, each with its standard input.

    Programs are looked up now: what an agent puts into PATH later is not it. `within`: trees where an agent works; a
    program or script in one of them is run only if it is still the same. `seen`: frozen looks; `settle_s`: how long the
    world may take until it is as before. `account`: the only one that it runs in. Raises Usage.
    """
    for name in env:
        if name in _NEVER or name.startswith(_NEVER_BEGIN):
            raise Usage(f"the variable '{name}' changes what programs do; it is not passed on")
    given = [*stdin, *[""] * (len(commands) - len(stdin))]
    steps, cwd = [found(argv) for argv in commands], os.path.abspath(cwd)
    inverse: Json = {
        "kind": "command",
        "steps": [{"argv": argv, "stdin": text} for argv, text in zip(steps, given, strict=True)],
        "cwd": cwd,
        "env": list(env),
        "timeout_s": timeout_s,
        "is_idempotent": is_idempotent,
    }
    if seen:
        inverse |= {"looks": list(seen), "settle_s": settle_s}
    if account is not None:
        inverse["account"] = account
    try:
        fixed = scripts.frozen(steps, cwd=cwd, within=within)
    except OSError as e:
        raise Usage(f"'{e.filename}' can't be read: {e.strerror}") from e
    if fixed:
        inverse["scripts"] = fixed
    return inverse


def found(argv: Sequence[str]) -> list[str]:
    """The same with the whole path of its program. Raises Usage."""
    import shutil

    if not argv or not argv[0]:
        raise Usage("a command that reverses needs a program")
    if any("\0" in word for word in argv):
        raise Usage("an argument can't hold a zero byte")
    program = argv[0] if os.path.isabs(argv[0]) else shutil.which(argv[0], path=PATH)
    program = program or shutil.which(argv[0])
    if program is None:
        raise Usage(f"there is no program '{argv[0]}'", hints=["give its whole path"])
    # a path that is whole stays as it is: with a link in it, `..` is not what it seems
    return [program if os.path.isabs(program) else os.path.abspath(program), *argv[1:]]


class CommandDriver:
    """Runs the commands. `clean` takes secrets out of what they print, which is kept; `sign` is for accounts."""

    def __init__(self, *, sign: Callable[[bytes], str], clean: Callable[[str], str] = str) -> None:
        self._sign, self._clean = sign, clean

    def says(self, effect: Effect) -> str:
        import shlex

        parts = []
        for argv, stdin in _steps(effect):
            given = f" with {stdin!r} as its input" if stdin else ""
            parts.append(shlex.join(argv) + given)
        where = f"in {(effect.inverse or {}).get('cwd', '.')}"
        account = accounts.words_of(effect.inverse)
        return "run: " + ", then: ".join(parts) + f"  ({where}{f'; in account: {account}' if account else ''})"

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        inverse = effect.inverse or {}
        cwd = str(inverse.get("cwd", ""))
        if wrong := self._wrong_account(effect):
            return Check(UNCLEAR, wrong)
        for argv, _ in _steps(effect):
            if not os.access(argv[0], os.X_OK):
                return Check(UNCLEAR, f"the program {argv[0]} is not there")
        if not os.path.isdir(cwd):
            return Check(UNCLEAR, f"the folder {cwd} is not there")
        if what := scripts.changed(inverse):
            return Check(CHANGED, f"{what}; it is not run. Take the files back first (--files), then this")
        if not (seen := _looks(inverse)):
            why = "an older version recorded it without a look at what was there before"
            return Check(UNCLEAR, why) if effect.rule else Check(READY)
        try:
            state, said = looks.compare(seen, lambda one: self._see(one, inverse, names))
        except OSError as e:
            return Check(UNCLEAR, f"Reprieve could not look whether it is as the agent left it: {e.strerror}")
        if state == looks.OTHER:
            return Check(CHANGED, f"it is not as the agent left it: {self._clean(said)}")
        return Check(READY) if state == looks.LEFT else Check(ALREADY, f"it is as before already: {self._clean(said)}")

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        outcome = self._run(effect, names)
        inverse = effect.inverse or {}
        if not (seen := _looks(inverse)) or (outcome.undo_state == FAILED):
            return outcome
        try:
            state, said = self._settled(seen, inverse, names, is_done=outcome.undo_state == UNDONE)
        except (Refused, OSError) as e:
            why = e.message if isinstance(e, Refused) else str(e.strerror)
            return Outcome(MANUAL, f"{outcome.detail}; Reprieve could not look whether it is undone: {why}")
        if state == looks.BEFORE:
            return Outcome(UNDONE, f"it is as before: {self._clean(said)}")
        left = "it is as the agent left it" if state == looks.LEFT else "it is not as it was before"
        return Outcome(FAILED if state == looks.LEFT else MANUAL, f"{left}: {self._clean(said)} ({outcome.detail})")

    def _settled(
        self, seen: Sequence[Json], inverse: Mapping[str, object], names: Mapping[str, str], *, is_done: bool
    ) -> tuple[str, str]:
        """What the looks show once the world has settled, or its time is over."""
        import time

        until, pause = time.monotonic() + float(str(inverse.get("settle_s") or 0)) * is_done, 0.25
        while True:
            state, said = looks.compare(seen, lambda one: self._see(one, inverse, names))
            left = until - time.monotonic()
            if state == looks.BEFORE or left <= 0:
                return state, said
            time.sleep(min(pause, left))
            pause = min(2 * pause, 5.0)

    def _see(self, one: Json, inverse: Mapping[str, object], names: Mapping[str, str]) -> str | tuple[str, ...]:
        argv, read = [names.get(str(word), str(word)) for word in _list(one.get("argv"))], one.get("read")
        assert isinstance(read, dict)
        return looks.look(
            argv, read, cwd=str(inverse.get("cwd", "")), env=environment(_passed(inverse), _account(inverse))
        )

    def _run(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        """Run the steps; `undone` means that each ended with 0."""
        inverse = effect.inverse or {}
        said = ""
        if wrong := self._wrong_account(effect):
            return Outcome(FAILED, wrong)
        for number, (argv, stdin) in enumerate(_steps(effect)):
            try:
                code, output, limit = run_bounded(
                    [names.get(word, word) for word in argv],
                    cwd=str(inverse.get("cwd", "")),
                    env=environment(_passed(inverse), _account(inverse)),
                    timeout_s=float(str(inverse.get("timeout_s") or TIMEOUT_S)),
                    stdin=stdin,
                )
            except OSError as e:
                return Outcome(MANUAL if number else FAILED, f"{argv[0]} could not be started: {e.strerror}")
            text = self._clean(output.decode("utf-8", "replace"))[-_SHOWN:].strip()
            said = f": {text}" if text else ""
            if limit:
                return Outcome(MANUAL, f"ended by us after {limit}; how far it came is not known{said}")
            if code != 0:
                # no program promises that it did nothing before it failed
                name = os.path.basename(argv[0])
                return Outcome(MANUAL, f"{name}: exit code {code}; how far it came is not known{said}")
        return Outcome(UNDONE, f"exit code 0{said}")

    def _wrong_account(self, effect: Effect) -> str:
        """Why the inverse would not run in the account of the effect; "" if it would."""
        kept = _account(effect.inverse or {})
        if kept is None:
            return "in which account it was done was not recorded. Nothing was sent" if effect.rule else ""
        wrong = accounts.differs(kept, environ=os.environ, sign=self._sign)
        return f"{wrong}. Nothing was sent" if wrong else ""

    def resolve(self, effect: Effect) -> str:
        return UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        # with looks it is run again only where they show that it did nothing
        inverse = effect.inverse or {}
        return bool(inverse.get("is_idempotent") or inverse.get("looks"))


def environment(passed: Sequence[str], account: Json | None = None) -> dict[str, str]:
    """What a reversing program may know: its account, and nothing else that an agent could have set."""
    chosen = accounts.environment_of(account, os.environ) if account is not None else {}
    for name in (*passed, *chosen):
        if name in _NEVER or name.startswith(_NEVER_BEGIN):
            raise Refused(f"the variable '{name}' changes what programs do; it is not passed on")
    env = {name: os.environ[name] for name in (*_PASSED, *passed) if name in os.environ}
    return {**env, **chosen, "PATH": PATH}


def run_bounded(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    most: int = MOST_OUTPUT,
    stdin: str = "",
    kept: int = 4 * _SHOWN,
    stderr_fd: int = -1,
) -> tuple[int, bytes, str]:
    """Exit code, the end of what it printed, and the limit that ended it ("" if none). Its whole group is ended.

    `stderr_fd`: where its error output goes, if not to the rest."""
    import selectors
    import signal
    import subprocess
    import time

    child = subprocess.Popen(
        list(argv),
        cwd=cwd or None,
        env=dict(env),
        stdin=_given(stdin) if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if stderr_fd < 0 else stderr_fd,
        start_new_session=True,
        close_fds=True,
    )
    assert child.stdout is not None
    until, size, output, limit = time.monotonic() + timeout_s, 0, b"", ""
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdout, selectors.EVENT_READ)
            while True:
                left = until - time.monotonic()
                if left <= 0:
                    limit = f"{timeout_s:g} s"
                    break
                if not ready.select(min(left, 0.1)):
                    if child.poll() is not None:
                        break  # a grandchild holds the pipe open; it goes with the group
                    continue
                data = os.read(child.stdout.fileno(), 65536)
                if not data:
                    break
                size += len(data)
                output = (output + data)[-kept:]
                if size > most:
                    limit = f"{most:,} bytes of output"
                    break
        if not limit:
            try:
                child.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                limit = f"{timeout_s:g} s"
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # the group is gone already
        child.wait()
        child.stdout.close()
    return child.returncode, output, limit


def _given(text: str) -> int:
    """A file that holds the input and has no name: a program that reads none of it can't block us."""
    fd = os.memfd_create("stdin") if hasattr(os, "memfd_create") else _unnamed()
    os.write(fd, text.encode("utf-8", "surrogateescape"))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _unnamed() -> int:
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _steps(effect: Effect) -> list[tuple[list[str], str]]:
    steps = []
    for step in _list((effect.inverse or {}).get("steps")):
        assert isinstance(step, dict)
        steps.append(([str(word) for word in _list(step.get("argv"))] or [""], str(step.get("stdin") or "")))
    return steps


def _account(inverse: Mapping[str, object]) -> Json | None:
    kept = inverse.get("account")
    return kept if isinstance(kept, dict) else None


def _looks(inverse: Mapping[str, object]) -> list[Json]:
    return [one for one in _list(inverse.get("looks")) if isinstance(one, dict)]


def _passed(inverse: Mapping[str, object]) -> list[str]:
    return [str(name) for name in _list(inverse.get("env"))]


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []
