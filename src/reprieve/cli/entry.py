"""Where the process comes in. A hook, which runs at every step, is answered without the rest of the command line."""

from __future__ import annotations

import gc
import os
import sys


def run() -> None:
    """The whole of a process: main, then out.

    Everything is written and closed by then: standard output is flushed, standard error goes line by line. Taking the
    interpreter apart would cost another 3 to 5 ms.
    """
    # a command ends before its garbage counts; looking for cycles while modules load costs 2 ms
    gc.set_threshold(200_000)
    hurry()
    # Of the launcher (cli/helper/launcher.c): whether it missed the helper, and the name that it was called by.
    # What the command starts must not see it.
    launched = os.environ.pop("REPRIEVE_LAUNCHED", "")
    folder, own_name = os.path.split(sys.argv[0])
    hot = None
    if sys.argv[1:2] == ["hook"]:
        from reprieve.cli.hot import install

        hot = install()
    is_launched = own_name == "reprieve-python" and launched[:1] in ("0", "1")
    if is_launched:
        sys.argv[0] = launched[1:]
    code = main()
    try:
        if hot is not None:
            hot.keep()
        if is_launched and code == 0 and launched[0] == "1":
            from reprieve.cli.helper.start import start

            start(folder)
    except Exception:  # noqa: BLE001 - the command has ended and said how; what only makes the next one faster changes nothing
        sys.excepthook(*sys.exc_info())
    os._exit(code)


def hurry() -> None:
    """Let no thread of a command's process wait long for another.

    One that reads and unpacks takes the interpreter back before the one that it gave it to has woken up; that one
    insists only after an interval, of 5 ms as Python comes. A rollback of 100 files loses 6 ms by it.
    """
    sys.setswitchinterval(0.0005)


def main() -> int:
    """Run the command line; the exit code."""
    if sys.argv[1:2] == ["hook"] and "--help" not in sys.argv and "-h" not in sys.argv:
        from reprieve.cli.hooking import serve

        return serve(sys.argv[2:], is_last=True)
    from reprieve.cli.main import main

    return main()
