"""Keep what a person accepted of a workspace's reprieve.toml: in the store, where the tree has no say.

What was accepted counts only while the file asks for it. Once the line is gone, putting it back needs a new answer.
"""

from __future__ import annotations

from reprieve.app import config as settings
from reprieve.errors import StoreFailed, StoreLocked, StoreUnavailable
from reprieve.model.timeline import ACCEPT, Draft

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.config import Config
    from reprieve.app.weaker import Weaker
    from reprieve.app.workspace import Workspace
    from reprieve.model.timeline import WorkspaceRecord
    from reprieve.store.protocols import Store


def settings_now(ws: Workspace) -> Config:
    """Read the settings again: `ws.config` is as old as `ws`, and an agent may have edited reprieve.toml since."""
    return settings.load(ws.root, _record(ws.store, ws.id).settings)


def accept(ws: Workspace, weaker: Sequence[Weaker]) -> None:
    """Let exactly these values take effect from the next opening on, and put that on the timeline."""
    import json

    with ws.store.lock(ws.id):
        ws.recover()
        with ws.store.transaction():
            record = _record(ws.store, ws.id)
            held = dict(settings.load(ws.root, record.settings).accepted)
            held.update({one.key: one.value for one in weaker})
            _save(ws.store, record, held)
            head = ws.timeline.head()
            label = "accepted weaker settings: " + "; ".join(one.text for one in weaker)
            draft = Draft(ACCEPT, ws.clock(), actor="person", label=label, data=json.dumps({"settings": held}))
            ws.timeline.append(draft.replace(files=head.files, size=head.size) if head else draft)


def soon_unprotected(ws: Workspace) -> list[bytes]:
    """Files of the newest entry's tree that would no longer be saved if all were accepted."""
    import json

    from reprieve.app.finding import limits_of
    from reprieve.files import tree
    from reprieve.model.entry import DIR

    head = ws.timeline.head()
    if head is None or not ws.config.weaker:
        return []
    held = {**dict(ws.config.accepted), **{one.key: one.value for one in ws.config.weaker}}
    limits = limits_of(settings.load(ws.root, json.dumps({"accepted": held}, separators=(",", ":"))), ws.root, ws.home)
    excludes, most = limits.excludes, limits.max_file_size
    return [
        path
        for path, entry in tree.entries(ws.capture.tree_at(head.seq))
        if entry.kind != DIR
        and not entry.gap
        and ((most and entry.size > most) or (excludes is not None and not excludes.accepts(path, False)))
    ]


def withdraw(store: Store, record: WorkspaceRecord, accepted: Sequence[tuple[str, object]]) -> None:
    """Keep no more as accepted than what the file still asks for."""
    try:
        with store.transaction():
            now = _record(store, record.id)
            if now.settings == record.settings:  # else somebody accepted something just now
                _save(store, now, dict(accepted))
    except (StoreFailed, StoreLocked, StoreUnavailable):
        return  # a store that can't be written to takes no checkpoint either; whoever takes the next one comes by here


def _save(store: Store, record: WorkspaceRecord, accepted: dict[str, object]) -> None:
    import json

    kept = json.loads(record.settings) if record.settings else {}
    kept.pop("accepted", None)
    if accepted:
        kept["accepted"] = accepted
    store.save_workspace(record.replace(settings=json.dumps(kept, separators=(",", ":")) if kept else ""))


def _record(store: Store, id: str) -> WorkspaceRecord:
    return next(record for record in store.workspaces() if record.id == id)
