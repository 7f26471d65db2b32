"""Say which of the paths that somebody names a checkpoint holds, and why it does not hold the others."""

from __future__ import annotations

import os

from reprieve.app.words import path as shown
from reprieve.files import tree
from reprieve.model.change import EXCLUDED, Gap
from reprieve.model.entry import DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.workspace import Made, Workspace
    from reprieve.store.protocols import Buffer

NOT_THERE = "it is not there; once it is made, going back to this checkpoint deletes it"


def protected(ws: Workspace, made: Made, paths: Sequence[bytes]) -> tuple[list[bytes], list[Gap]]:
    """Those of the paths that a checkpoint just made holds, and what of them it does not hold."""
    packed = ws.capture.tree_at(made.entry.seq)
    gaps = {gap.path: gap.reason for gap in made.gaps}
    held: list[bytes] = []
    missing: list[Gap] = []
    for path in paths:
        reason = _why_not(ws, packed, gaps, path)
        if reason:
            missing.append(Gap(path, reason))
            continue
        held.append(path)
        beneath = path + b"/" if path else b""
        missing += [gap for gap in made.gaps if gap.path.startswith(beneath)]
    return held, list(dict.fromkeys(missing))


def _why_not(ws: Workspace, packed: Buffer, gaps: dict[bytes, str], path: bytes) -> str:
    """Why a path is not in the tree; "" if it is."""
    above = [folder for folder in tree.ancestors(path) if folder]
    for name in (path, *above):
        if name in gaps:
            return gaps[name]
    for folder in above:
        entry = tree.lookup(packed, folder)
        if entry is not None and entry.kind != DIR:
            return f"'{shown(folder)}' is no folder; where it leads to is not looked at"
    if not path or tree.lookup(packed, path) is not None:
        return ""
    excludes = ws.capture.limits.excludes
    if excludes is not None and not all(
        excludes.accepts(name, is_dir) for name, is_dir in ((path, False), *((folder, True) for folder in above))
    ):
        return EXCLUDED
    if os.path.lexists(os.path.join(ws.root, path)):
        return "the checkpoint does not hold it"  # made meanwhile, or the store itself
    return NOT_THERE
