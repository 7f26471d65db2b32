"""The command line's way in and out: read the words, run one command, turn every end into an exit code.

The one place where errors become text and exit codes.
"""

from __future__ import annotations

import _signal
import errno
import os
import sys

from reprieve.cli import catalog
from reprieve.cli.spec import Parsed, parse
from reprieve.cli.terminal import Terminal
from reprieve.errors import Interrupted, Misconfigured, Partial, ReprieveError, StoreFailed, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


# take back, free bytes, or only look: what must go on when the disk is full
_FREE_BYTES = ("prune", "gc", "forget")
_NEED_LITTLE = ("status", "log", "show", "diff", "rollback", "revert", "redo", "verify", *_FREE_BYTES)

# some of what these do is refused to agents (`person_only`, which costs time to load)
_FOR_PERSONS = (
    "forget", "prune", "pin", "name", "thread", "keep", "compensate", "track", "unprotect", "mcp", "config",
)  # fmt: skip


class Stopped(BaseException):
    """A signal asked the process to end; unwinds like KeyboardInterrupt, so that locks and staging are let go."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Bug(ReprieveError):
    """Something that should not have happened."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["hook"] and not {"--help", "-h"} & set(words):
        # an agent is at the other end: whatever is wrong, the answer must be in its language
        from reprieve.cli.hooking import serve

        return serve(words[1:])
    parsed = Parsed()
    # asked again below, properly: an error while reading the words must be in JSON already
    terminal = Terminal(json="--json" in (words[: words.index("--")] if "--" in words else words))
    try:
        _catch_signals()
        try:
            return _run(words, parsed, terminal)
        except BaseException:
            _ignore_signals()  # a second one must not cut the report of the first short
            raise
    except ReprieveError as error:
        return _fail(terminal, parsed, error)
    except KeyboardInterrupt:
        return _fail(terminal, parsed, _interrupted("interrupted"))
    except Stopped as stopped:
        _fail(terminal, parsed, _interrupted("stopped by a signal"))
        return stopped.exit_code
    except OSError as error:
        what = f" ({error.filename!r})" if error.filename else ""
        text = f"the system refused: {error.strerror or error}{what}"
        return _fail(terminal, parsed, StoreFailed(text, hints=["see what is wrong here: reprieve doctor"]))
    except Exception as error:  # noqa: BLE001 - the last resort: it is shown, never swallowed
        return _fail(terminal, parsed, _bug(error))


def _run(words: list[str], parsed: Parsed, terminal: Terminal) -> int:
    parse(words, parsed, find=catalog.find, names=catalog.NAMES)
    terminal.json = parsed.flag("json")
    terminal.quiet = parsed.flag("quiet")
    name = parsed.word or "status"
    if parsed.flag("version"):
        from reprieve.version import VERSION

        terminal.line(f"reprieve {VERSION}")
        terminal.answer(version=VERSION)
        code, name = 0, "version"
    elif parsed.flag("help"):
        name = "help"
        parsed.values["COMMAND"] = [parsed.word] if parsed.word else []
        code = _load("help")(parsed, terminal)
    else:
        parsed.start = _directory(parsed.text("directory"))
        if name in _FOR_PERSONS:
            from reprieve.cli.person_only import refuse_agents

            refuse_agents(name, parsed)
        code = _run_with_reserve(name, parsed, terminal)
    try:
        terminal.finish(name)
    except OSError as error:
        raise Partial(
            f"the command has done its work, but its answer could not be written: {error.strerror}"
        ) from error
    return code


def _run_with_reserve(name: str, parsed: Parsed, terminal: Terminal) -> int:
    """On a full disk, what takes back or frees bytes is tried once more without the store's reserve."""
    try:
        return _load(name)(parsed, terminal)
    except StoreFailed as error:
        if name not in _NEED_LITTLE or not _is_disk_full(error):
            raise
        from reprieve.app import places
        from reprieve.store.ballast import release_ballast

        if not release_ballast(places.home(), wholly=name in _FREE_BYTES):
            raise
        terminal.reporter.note("the disk is full; using the store's reserve")
    return _load(name)(parsed, terminal)


def _is_disk_full(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", -1)):
            return True
        if "disk is full" in str(error):  # SQLite's words
            return True
        error = error.__cause__
    return False


def _load(name: str) -> catalog.Runner:
    loaded = catalog.load(name)
    assert loaded is not None, name
    return loaded[1]


def _directory(given: str) -> str:
    try:
        start = os.path.abspath(given or ".")
    except FileNotFoundError as error:
        hints = [*_way_back(os.environ.get("PWD", "")), "name another: -C DIR"]
        raise Misconfigured("the current directory no longer exists", hints=hints) from error
    if given and not os.path.isdir(start):
        raise Usage(f"there is no directory '{given}'", hints=_way_back(start))
    return start


def _way_back(folder: str) -> list[str]:
    """What brings a protected folder back that is gone."""
    if not os.path.isabs(folder):
        return []
    from reprieve.app.gone import way_back

    return way_back(folder)


def _catch_signals() -> None:
    # _signal is what `signal` wraps in enums, which would cost the hot path 5 ms
    def stop(number: int, _frame: object) -> None:
        raise Stopped(number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(_signal, name, None)
        # what the parent chose to ignore (nohup) stays ignored
        if number is not None and _signal.getsignal(number) == _signal.SIG_DFL:
            _signal.signal(number, stop)


def _ignore_signals() -> None:
    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        number = getattr(_signal, name, None)
        if number is not None:
            _signal.signal(number, _signal.SIG_IGN)


def _interrupted(message: str) -> Interrupted:
    return Interrupted(message, hints=["what was begun is finished or undone by the next command"])


def _bug(error: Exception) -> Bug:
    import traceback

    data: dict[str, object] = {}
    details: list[str] = []
    hints = [
        "nothing is lost: what was begun is finished or undone by the next command",
        "please report it with the output of: reprieve doctor",
    ]
    if os.environ.get("REPRIEVE_DEBUG") == "1":
        text = "".join(traceback.format_exception(error))
        data["traceback"] = text
        details = text.rstrip().split("\n")
    else:
        hints.append("REPRIEVE_DEBUG=1 shows where it happened")
    return Bug(f"this is a bug in Reprieve: {type(error).__name__}: {error}", details=details, hints=hints, data=data)


def _fail(terminal: Terminal, parsed: Parsed, error: ReprieveError) -> int:
    terminal.fail(parsed.word, error)
    if terminal.json and terminal.is_closed:
        terminal.error_line(f"Error: {error.message}")  # where the object would have gone, nothing can be written
    try:
        terminal.flush()
    except OSError as problem:
        terminal.error_line(f"Error: the answer could not be written: {problem.strerror}")
    return error.exit_code
