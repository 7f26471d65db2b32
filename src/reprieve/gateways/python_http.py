"""Record what this Python process does over HTTP: each client is taken where it really sends, when it is imported.

httpx, urllib3 (and so requests), aiohttp and http.client (and so urllib). A client that is imported later is taken
then; one whose version can't be recorded is not imported at all: a call that nobody writes down is worse than none.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder

from reprieve.app.finding import open_workspace
from reprieve.app.http_calls import HttpCalls
from reprieve.app.http_rules import catalog_rules
from reprieve.errors import Usage
from reprieve.model.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from reprieve.effects.calls import Call
    from reprieve.effects.rest import Rule, Rules

# module of the client → our module that knows it
_CLIENTS = {
    "http.client": "reprieve.gateways.client_stdlib",
    "httpx": "reprieve.gateways.client_httpx",
    "urllib3": "reprieve.gateways.client_urllib3",
    "aiohttp": "reprieve.gateways.client_aiohttp",
}
ON_REPEAT = ("raise", "replay")


class _Voice(Reporter):
    """Warnings go to standard error: there is nobody else here to tell."""

    def warn(self, text: str) -> None:
        print(f"Reprieve: {text}", file=sys.stderr)


class Installation(MetaPathFinder):
    """Our place in this process, until it is taken away. Also a finder of modules, so as to see clients come."""

    def __init__(self, calls: HttpCalls) -> None:
        self.calls = calls
        self._undo: list[tuple[object, str, object]] = []
        self._looking: set[str] = set()

    def begin(self) -> None:
        """Take the clients that are there, and wait for the others."""
        for name in _CLIENTS:
            if name in sys.modules:
                self._take(name, sys.modules[name])
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Leave everything as it was."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        while self._undo:
            owner, name, value = self._undo.pop()
            setattr(owner, name, value)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _CLIENTS or name in self._looking:
            return None
        from importlib.util import find_spec

        self._looking.add(name)
        try:
            spec = find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, lambda module: self._take(name, module))
        return spec

    def _take(self, name: str, module: ModuleType) -> None:
        self._undo += import_module(_CLIENTS[name]).patch(module, self.calls)


class _Then(Loader):
    """Load as before, then have a look."""

    def __init__(self, loader: Loader, then: object) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)  # type: ignore[operator]


_here: list[Installation] = []  # a process has one, because its clients have one place where they send


def install(
    path: str | os.PathLike[str] | None = None, *, on_repeat: str = "raise", rules: Rules | None = None
) -> None:
    """Record every HTTP call of this process that may have an effect, on the workspace at `path`.

    Default: $REPRIEVE_WORKSPACE, or the current folder. Calls that policy does not let pass raise `reprieve.Refused`
    and are not sent. `on_repeat`: what happens to a call that survived a rollback and is made again: "raise"
    `reprieve.Repeated`, or "replay" the recorded answer where there is one. Raises Usage if it is installed already
    for another workspace; installing twice for the same one is fine.
    """
    if on_repeat not in ON_REPEAT:
        raise Usage(f"on_repeat is one of {', '.join(ON_REPEAT)}, not '{on_repeat}'")
    start = os.path.abspath(os.fspath(path) if path is not None else os.environ.get("REPRIEVE_WORKSPACE") or ".")
    known = catalog_rules()

    def find(call: Call) -> Rule | None:
        return (rules(call) if rules is not None else None) or known(call)

    calls = HttpCalls(lambda: open_workspace(start, create=True, reporter=_Voice()), rules=find, on_repeat=on_repeat)
    ws, journal = calls.open()  # fail now, not at the first call
    if _here:
        other = _here[0].calls.open()[0]
        journal.log.close()
        ws.close()
        if other.id != ws.id:
            raise Usage(f"HTTP calls are recorded for '{os.fsdecode(other.root)}' already")
        return
    installation = Installation(calls)
    try:
        installation.begin()
    except BaseException:
        installation.end()
        raise
    _here.append(installation)


def uninstall() -> None:
    """Record no further calls of this process."""
    while _here:
        installation = _here.pop()
        installation.end()
        ws, journal = installation.calls.open()
        journal.log.close()
        ws.close()
