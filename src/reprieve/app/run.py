"""Run any command reversibly: checkpoint, run it untouched, seal. What changed in between is that run's step."""

from __future__ import annotations

import fcntl
import os
import sys

from reprieve.app.accepting import settings_now
from reprieve.app.recording import Recording
from reprieve.errors import Conflict, Misconfigured, Refused
from reprieve.files.attribution import last_standing
from reprieve.files.processes import RUN, above, is_alive, left_by, name_of
from reprieve.model.value import Value
from reprieve.model.window import Standing, standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    from reprieve.app.weaker import Weaker
    from reprieve.app.workspace import Workspace
    from reprieve.model.change import Gap
    from reprieve.model.plan import Plan, Report
    from reprieve.model.timeline import TimelineEntry
    from reprieve.model.window import Window


class Ran(Value):
    """A command that was run: its own exit code, the checkpoints around it, and what was taken back."""

    exit_code: int
    before: TimelineEntry
    after: TimelineEntry
    gaps: tuple[Gap, ...]
    changed: int  # paths that differ from before it to after it, whatever checkpoints were taken in between
    plan: Plan | None = None
    report: Report | None = None
    still_running: tuple[tuple[int, str], ...] = ()  # (pid, name) of what it left behind when it was taken back
    is_check_red: bool = False  # the command went well; the check says otherwise
    problem: str = ""  # why its changes were not taken back, though they were to be
    weaker: tuple[Weaker, ...] = ()  # what reprieve.toml asks for after it, and nobody accepted
    mistakes: tuple[str, ...] = ()  # what is wrong with that file since the run


def run(
    ws: Workspace,
    argv: Sequence[str],
    *,
    label: str = "",
    on_failure: str = "keep",
    check: str = "",
    hold_mail: bool = False,
    isolate: str = "none",
    record_http: bool = False,
) -> Ran:
    """Run argv with our terminal, streams and signals; its changes belong to the step `label`.

    `check` is a shell command that must succeed too; what it writes belongs to the same step. `hold_mail`: mail that
    it hands to `sendmail` or to the server that its environment names is held. `isolate`: "net" shuts it out of the
    network. Raises Refused where this machine can't. `record_http`: Python programs among what it starts record their
    HTTP calls, or do not run.
    """
    started = _isolated(argv) if isolate == "net" else argv
    label = label or os.path.basename(argv[0])
    before, window = ws.open_window(
        f"run:{label}", label, label=f"before {label}", pid=os.getpid(), parent=outer_window(ws)
    )
    code = -1
    later = _Later()
    try:
        with (
            _announced(ws, label),
            _holding(ws, hold_mail) as extra,
            Recording(ws, argv, holds_mail=hold_mail) as recording,
        ):
            recorded = _recording_http(ws) if record_http else {}
            later.begin()
            code = recording.exit_code = _spawn(started, {**extra, **recorded}, later.came)
            is_checked = code == 0 and bool(check) and not later.came
            if is_checked:
                code = _spawn(("/bin/sh", "-c", check), extra, later.came)
    except BaseException:
        later.begin()
        # or what others do from now on would be taken for this run's
        with later:
            ws.close_window(window, label=label if code >= 0 else f"{label} (not run)", left=left_by(os.getpid()))
        raise
    with later:
        left = left_by(os.getpid())
        sealed = ws.close_window(window, label=label, left=left)
    ran = Ran(code, before.entry, sealed.entry, sealed.gaps, _changed(ws, before.entry, sealed.entry))
    ran = ran.replace(is_check_red=is_checked and code != 0)
    try:
        settings = settings_now(ws)
    except Misconfigured as e:  # the user's own file, broken since
        ran = ran.replace(mistakes=(e.message,))
    else:
        mistakes = tuple(problem for problem in settings.problems if problem not in ws.config.problems)
        ran = ran.replace(weaker=settings.weaker, mistakes=mistakes)
    if code != 0 and on_failure == "rollback":
        try:
            plan, report = _take_back(ws, before.entry, sealed.entry, window)
        except (Conflict, Refused) as e:
            return ran.replace(problem=e.message)  # said; the exit code stays the command's
        ran = ran.replace(plan=plan, report=report, still_running=tuple(_still_running(left)))
    return ran


def _changed(ws: Workspace, before: TimelineEntry, after: TimelineEntry) -> int:
    if after.seq == before.seq + 1:
        return after.changed
    # an agent's hooks, runs inside of this one: what they sealed is not in the last checkpoint's count
    return len(ws.diff(before.id, after.id).changes)


def _take_back(
    ws: Workspace, before: TimelineEntry, after: TimelineEntry, window: Window
) -> tuple[Plan, Report | None]:
    """Take the run's changes back. Raises Conflict, Refused: nothing was touched.

    Nobody was asked about what is outside of the folder: it is named, and left.
    """
    if _had_company(ws, before, after, window):
        return ws.undo(after.id, effects="list")  # a rollback would take back what the others did as well
    return ws.rollback(before.id, effects="list")


def _had_company(ws: Workspace, before: TimelineEntry, after: TimelineEntry, window: Window) -> bool:
    """Whether somebody else was at work in the meantime: neither started by this run nor the one who started it."""
    seen = {w.id: w for entry in (before, *ws.timeline.after(before.seq)) if entry.seq <= after.seq
            for w in standing(entry.data).open}  # fmt: skip
    ours = {window.id}
    for id, other in seen.items():  # in the order in which they were opened
        if other.parent in ours:
            ours.add(id)
    callers = above()
    around = {w.id for w in standing(before.data).open if w.pid in callers and w.id not in ours}
    innermost = around - {seen[id].parent for id in around}
    if len(innermost) <= 1:
        ours |= around  # an agent's call that runs us, or a run; of several calls nobody can tell which it is
    return not ours.issuperset(seen)


def _still_running(left: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """(pid, name) of those that go on, and may write again what was taken back."""
    for pid, born in left:
        if is_alive(pid, born):
            try:
                yield pid, name_of(pid)
            except OSError:
                continue  # it ended just now


def _holding(ws: Workspace, is_wanted: bool) -> AbstractContextManager[Mapping[str, str]]:
    """What the environment needs so that mail is held; nothing if it is not to be."""
    if is_wanted:
        from reprieve.app.holding import holding

        return holding(ws)
    from contextlib import nullcontext

    return nullcontext({})


def _isolated(argv: Sequence[str]) -> list[str]:
    from reprieve.app import isolate

    if not isolate.is_possible():
        raise Refused(
            "this machine does not let us shut a command out of the network; nothing was run",
            hints=["as root it can be done, or where user namespaces are allowed", "without it: --isolate none"],
        )
    # by its file and isolated from the environment: what an agent put on PYTHONPATH is not it
    return [sys.executable, "-I", "-S", isolate.__file__, *argv]


def outer_window(ws: Workspace) -> str:
    """The window of the run that we are run by, "" if there is none here."""
    outer = os.environ.get(RUN, "")
    going_on = last_standing(ws.timeline, ws.timeline.tip()) if outer.isdecimal() else Standing()
    return next((window.id for window in going_on.open if window.pid == int(outer)), "")


def active_runs(home: str, workspace_id: str) -> Iterator[tuple[int, str]]:
    """(pid, label) of every `run` under way in a workspace. The kernel's lock tells, not the file."""
    folder = os.path.join(home, "locks")
    prefix = f"{workspace_id}.run."
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if not name.startswith(prefix):
            continue
        path = os.path.join(folder, name)
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # it ended just now
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield int(name[len(prefix) :]), os.read(fd, 4096).decode(errors="replace")
        else:
            os.unlink(path)  # left by one that was killed
        finally:
            os.close(fd)


def refuse_while_running(ws: Workspace) -> None:
    """Raises Refused if a run is under way here that we are not part of."""
    for pid, label in active_runs(ws.home, ws.id):
        if os.environ.get("REPRIEVE_RUN") != str(pid):
            raise Refused(
                f"'reprieve run' of '{label}' is still active here (pid {pid}); nothing was touched",
                hints=[f"end it first (pid {pid}), then run the same command again"],
                data={"pid": pid},
            )


class _announced:
    """Others can see that this run is under way, until the process ends, however it ends."""

    def __init__(self, ws: Workspace, label: str) -> None:
        self.path = os.path.join(ws.home, "locks", f"{ws.id}.run.{os.getpid()}")
        self.label = label
        self.fd = -1

    def __enter__(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        os.ftruncate(self.fd, 0)
        os.write(self.fd, self.label.encode(errors="surrogateescape")[:4096])

    def __exit__(self, *_: object) -> None:
        os.unlink(self.path)
        os.close(self.fd)


def _recording_http(ws: Workspace) -> dict[str, str]:
    """What makes every Python below us load our sitecustomize first."""
    start = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gateways", "start")
    inherited = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{start}{os.pathsep}{inherited}" if inherited else start,
        "REPRIEVE_RECORD_HTTP": "1",
        "REPRIEVE_WORKSPACE": os.fsdecode(ws.root),
        "REPRIEVE_HOME": ws.home,
    }


class _Later:
    """From `begin` to the end of the block, what asks us to end waits; then it is heard.

    A second Ctrl-C often comes when the command has just ended. Were the end of its window not recorded then, what the
    person who pressed it does next would count as its work. Ctrl-\\ does end us at once.
    """

    def __init__(self) -> None:
        self.came: list[int] = []
        self._old: dict[int, object] = {}

    def begin(self) -> None:
        import signal

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number not in self._old and signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._hear)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        import signal

        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        for number in self.came:
            os.kill(os.getpid(), number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.came.append(number)


def _spawn(argv: Sequence[str], extra: Mapping[str, str], early: list[int]) -> int:
    """The command's exit code; 128 + n if signal n ended it; 127 and 126 as a shell would for one that can't start.

    `early`: signals that arrived before we know its pid; it gets them then.
    """
    import signal  # here, because a rollback asks this module for active runs and need not pay for enum

    env = {**os.environ, **extra, RUN: str(os.getpid())}
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Ctrl-C goes from the terminal to both and is the command's to answer; what is sent to us alone is passed on.
    old: dict[int, object] = {}
    child, is_over = 0, False

    def forward(number: int, frame: FrameType | None) -> None:
        if is_over:
            return  # its number may be another process's by now
        if child:
            os.kill(child, number)
        else:
            early.append(number)

    def forward_unless_typed(number: int, frame: FrameType | None) -> None:
        if not _is_at_the_keyboard():
            forward(number, frame)

    ways = dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2), forward)
    ways |= dict.fromkeys((signal.SIGINT, signal.SIGQUIT), forward_unless_typed)
    for number, way in ways.items():
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup's choice holds for the command as well
            old[number] = signal.signal(number, way)
    try:
        defaults = [n for n in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE) if n in old or n == signal.SIGPIPE]
        try:
            child = os.posix_spawnp(argv[0], list(argv), env, setsigdef=defaults)
        except OSError as e:
            print(f"reprieve run: {argv[0]}: {e.strerror}", file=sys.stderr)
            return 127 if isinstance(e, FileNotFoundError) else 126
        while early:
            os.kill(child, early.pop(0))
        if hasattr(os, "waitid"):
            # it keeps its number until it is asked once more, so a signal that comes in this moment hits nobody else
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            is_over = True
        status = os.waitpid(child, 0)[1]
    finally:
        for changed, handler in old.items():
            signal.signal(changed, handler)  # type: ignore[arg-type]
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _is_at_the_keyboard() -> bool:
    """Whether Ctrl-C typed now would reach us, and with us the command. Who sent a signal Python does not tell."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)
