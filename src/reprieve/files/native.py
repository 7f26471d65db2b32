"""The file engine's bulk work: the C extension where it was built, else its Python twin.

`REPRIEVE_NATIVE=0` forces the twin. What each function promises is in `_native.pyi`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files._native import (
        birth,
        check,
        cuts,
        diff,
        entries,
        fill_stats,
        find,
        finish_dirs,
        get,
        has_end,
        look_at,
        make_dirs,
        merge,
        move_many,
        open_beneath,
        orphans,
        pack,
        read_rows,
        rename2,
        rows_with,
        scan,
        scan_begin,
        scan_end,
        sha256,
        stat_many,
        syncfs,
        totals,
        trim,
        unlink_many,
        with_xattrs,
        write_files,
        writers,
    )

    IMPLEMENTATION: str
else:
    IMPLEMENTATION = "python"
    if os.environ.get("REPRIEVE_NATIVE") != "0":
        try:
            from reprieve.files._native import *  # noqa: F403

            IMPLEMENTATION = "c"
        except ImportError:  # no compiler when it was installed, or a platform that it does not know
            pass
    if IMPLEMENTATION == "python":
        from reprieve.files._twin import *  # noqa: F403

__all__ = [
    "IMPLEMENTATION",
    "birth",
    "check",
    "cuts",
    "diff",
    "entries",
    "fill_stats",
    "find",
    "finish_dirs",
    "get",
    "has_end",
    "look_at",
    "make_dirs",
    "merge",
    "move_many",
    "open_beneath",
    "orphans",
    "pack",
    "read_rows",
    "rename2",
    "rows_with",
    "scan",
    "scan_begin",
    "scan_end",
    "sha256",
    "stat_many",
    "syncfs",
    "totals",
    "trim",
    "unlink_many",
    "with_xattrs",
    "write_files",
    "writers",
]
