"""Which workspaces a step of an agent may touch: of the project, of where it works, of the files that it names."""

from __future__ import annotations

import os

from reprieve.app import places
from reprieve.app.finding import is_annex, open_workspace
from reprieve.app.hook_folders import folders, is_in, node
from reprieve.errors import Misconfigured
from reprieve.files.attribution import last_standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from reprieve.app.workspace import Workspace
    from reprieve.model.hookevent import HookEvent
    from reprieve.model.reporter import Reporter
    from reprieve.model.timeline import WorkspaceRecord
    from reprieve.store.protocols import Store

_MOST_PLACES = 16  # of folders outside the project that one call names


class Places:
    """The workspaces of one event, opened; `outside` names the files that no workspace holds."""

    def __init__(
        self,
        event: HookEvent,
        *,
        variables: Mapping[str, str],
        reporter: Reporter,
        clock: Callable[[], int],
        create: bool,
    ) -> None:
        self._reporter, self._clock, self.variables = reporter, clock, variables
        self.found: list[Workspace] = []
        self.outside: list[str] = []
        self._known: set[bytes | tuple[int, int]] | None = None  # every workspace, by its path and by its inode
        try:
            for folder in folders(event, variables, create=create):
                self._add(folder, create=create)
            self._of_paths(event)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for ws in self.found:
            ws.close()

    def open(self, record: WorkspaceRecord) -> AbstractContextManager[Workspace]:
        """That workspace; where its folder was deleted, with an empty one in its place."""
        root = record.root
        if not os.path.isdir(root):
            from reprieve.app.gone import open_gone, renamed_to

            renamed = renamed_to(record)
            if renamed is None:
                return open_gone(record, reporter=self._reporter, clock=self._clock)
            root = renamed
        return open_workspace(os.fsdecode(root), exactly=True, reporter=self._reporter, clock=self._clock)

    def others(self, known: set[str], *, who: str, also: set[str]) -> list[WorkspaceRecord]:
        """Other workspaces where that session, or a sub-agent of it, has a window open."""
        home = places.home()
        if not self.found and not os.path.lexists(home):
            return []
        from reprieve.store.local import LocalStore

        store: Store = self.found[0].store if self.found else LocalStore.open(home, reporter=self._reporter)
        try:
            found = []
            for record in store.workspaces():
                if record.id in known or is_annex(record):
                    continue
                timeline = store.timeline(record.id)
                actors = {window.actor for window in last_standing(timeline, timeline.tip()).open}
                is_at_work = any(actor == who or actor.startswith(who + "/") for actor in actors)
                if os.path.isdir(record.root):
                    is_in = is_at_work or record.id in also
                else:
                    is_in = is_at_work and _is_gone(record.root)
                if is_in:
                    found.append(record)
            return found
        finally:
            if not self.found:
                store.close()

    def _add(self, folder: str, *, create: bool) -> None:
        if self._is_found(os.path.realpath(os.fsencode(folder))):
            return
        try:
            ws = open_workspace(folder, reporter=self._reporter, clock=self._clock)
        except Misconfigured:
            if not create:
                return
            ws = open_workspace(project_of(folder), create=True, reporter=self._reporter, clock=self._clock)
        if any(ws.id == known.id for known in self.found):
            ws.close()
        else:
            self.found.append(ws)

    def _is_found(self, folder: bytes) -> bool:
        """Whether the workspace is found that a folder is in; it may lie inside of another one that is."""
        root = max((ws.root for ws in self.found if is_in(folder, ws.root)), key=len, default=None)
        if root is None or folder == root:
            return root is not None
        if self._known is None:
            records = [record for record in self.found[0].store.workspaces() if not is_annex(record)]
            self._known = {record.root for record in records} | {(record.dev, record.ino) for record in records}
        while folder != root:
            if folder in self._known or node(folder) in self._known:
                return False
            folder = os.path.dirname(folder)
        return True

    def _of_paths(self, event: HookEvent) -> None:
        tried: set[bytes] = set()
        for path in event.paths:
            if not os.path.isabs(path):
                continue
            try:
                named = os.fsencode(path)
            except UnicodeEncodeError:
                continue  # half a surrogate: no file has such a name
            files = [named]
            if os.path.islink(named):
                files.append(os.path.realpath(named))  # the tool may write through it, or put a file in its place
            lost = [file for file in files if not self._is_held(file, tried)]
            self.outside += [os.fsdecode(file) for file in lost[:1]]

    def _is_held(self, file: bytes, tried: set[bytes]) -> bool:
        """Whether a workspace holds a file, or would; it is opened."""
        folder = os.path.realpath(os.path.dirname(file))
        if self._is_found(folder):
            return True
        if folder not in tried and len(tried) < _MOST_PLACES:
            tried.add(folder)
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            self._add(os.fsdecode(folder), create=False)
        return any(is_in(folder, ws.root) or _is_tracked(file, ws) for ws in self.found)


def _is_gone(root: bytes) -> bool:
    from reprieve.app.gone import is_gone

    return is_gone(root)


def project_of(folder: str) -> str:
    """The folder to protect for someone who works in `folder`: the repository around it, if there is one."""
    home = os.path.realpath(os.path.expanduser("~"))
    at = top = os.path.realpath(folder)
    while at not in (home, os.path.dirname(at)):
        if os.path.lexists(os.path.join(at, ".git")):
            return at
        at = os.path.dirname(at)
    return top


def _is_tracked(path: bytes, ws: Workspace) -> bool:
    return any(
        is_in(path, annex.ws.root) and annex.selects(path[len(annex.ws.root.rstrip(b"/")) + 1 :])
        for annex in ws.annexes
    )
