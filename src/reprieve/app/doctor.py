"""Tell what is wrong on this machine, and what to do. Looks only; repairs nothing."""

from __future__ import annotations

import os
import shutil

from reprieve.app import places
from reprieve.app.care import count_outdated, verify
from reprieve.app.finding import open_workspace
from reprieve.app.weaker import ACCEPT
from reprieve.errors import Misconfigured, ReprieveError
from reprieve.files import native
from reprieve.model.reporter import Reporter
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprieve.app.workspace import Workspace

_LOW_BYTES = 512 << 20


class Finding(Value):
    """One thing that was looked at: `level` is ok, warn or bad."""

    level: str
    subject: str
    text: str
    hint: str = ""


def diagnose(start: str, reporter: Reporter | None = None) -> list[Finding]:
    """Everything that can be checked from here."""
    found = [_engine()]
    if os.environ.get("REPRIEVE_DISABLED") == "1":
        found.append(Finding("warn", "switch", "REPRIEVE_DISABLED=1 turns protection by hooks off", "unset it"))
    home = places.home()
    try:
        ws = open_workspace(start, reporter=reporter)
    except Misconfigured as e:
        return [*found, *_space(home, "store"), Finding("warn", "workspace", e.message, *e.hints[:1])]
    except ReprieveError as e:
        return [*found, Finding("bad", "store", e.message, *e.hints[:1])]
    with ws:
        root = os.fsdecode(ws.root)
        is_same_disk = os.stat(root).st_dev == os.stat(home).st_dev
        found += [*_space(home, "store", _freeing(ws)), *_space(root, "folder", _freeing(ws) if is_same_disk else "")]
        found += file_system(ws)
        found += _contents(ws)
        found += [Finding("bad", "configuration", text, "correct reprieve.toml") for text in ws.config.problems]
        if ws.config.weaker:
            text = "reprieve.toml asks for less protection, without effect so far"
            found.append(Finding("warn", "configuration", text, f"see what it would change: {ACCEPT} --dry-run"))
    return found


def _engine() -> Finding:
    if native.IMPLEMENTATION == "c":
        return Finding("ok", "engine", "native scan is in use")
    return Finding(
        "warn",
        "engine",
        "the native scan is not built here: everything works, only slower",
        "install a C compiler and the Python headers, then install reprieve again",
    )


def _freeing(ws: Workspace) -> str:
    """Which command frees space on the store's disk; it works with 0 bytes free, too."""
    try:
        if count := count_outdated(ws):
            return f"reprieve prune    delete {count} old {'checkpoint' if count == 1 else 'checkpoints'}"
    except ReprieveError:
        return ""  # `_contents` tells what is damaged
    return "no checkpoint is old enough for `reprieve prune`; keep fewer: reprieve prune --keep-last 5 --keep-days 0"


def _space(path: str, subject: str, freeing: str = "") -> Iterator[Finding]:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    free = shutil.disk_usage(path).free
    if free < _LOW_BYTES:
        hint = freeing or "delete files that you no longer need there"
        yield Finding("warn", subject, f"only {free >> 20} MiB are free at '{path}'", hint)
    else:
        yield Finding("ok", subject, f"{free >> 30} GiB are free at '{path}'")


def file_system(ws: Workspace) -> Iterator[Finding]:
    """What the folder's file system cannot keep, by trying it beside the tree's own files."""
    from reprieve.files.probe import probe

    for text in probe(ws.root_fd):
        yield Finding("warn", "file system", text)


def _contents(ws: Workspace) -> Iterator[Finding]:
    head = ws.timeline.head()
    if head is None:
        yield Finding("warn", "checkpoints", "there is none yet", "reprieve checkpoint")
        return
    if ws.timeline.intent():
        yield Finding("warn", "rollback", "one was interrupted", "finish it: reprieve status")
    checked = verify(ws, sample=0.01)
    for problem in checked.problems:
        yield Finding("bad", "store", problem, "see all of it: reprieve verify")
    if not checked.problems:
        yield Finding("ok", "checkpoints", f"{checked.entries} entries; a sample of {checked.objects} objects is whole")
    for gap in ws.status().gaps:
        yield Finding("warn", "gap", f"'{os.fsdecode(gap.path)}' is not protected: {gap.reason}")
