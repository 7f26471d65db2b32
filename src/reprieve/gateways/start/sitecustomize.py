"""Loaded by every Python that `reprieve run --record-http` starts: installs the recorder, or ends the program.

Python loads the first `sitecustomize` on its path; one that was there before us is loaded next.
"""

from __future__ import annotations

import importlib.util
import os
import sys


def _chain(here: str) -> None:
    """Load the sitecustomize that would have been loaded without us."""
    ours = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.path_importer_cache.pop(here, None)
    try:
        spec = importlib.util.find_spec("sitecustomize")
        if spec is not None:
            importlib.import_module("sitecustomize")
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def _install(here: str) -> None:
    # this file is reprieve/gateways/start/sitecustomize.py; another environment's Python may not have the package
    packages = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    if importlib.util.find_spec("reprieve") is None:
        sys.path.append(packages)
    from reprieve.gateways.python_http import install

    install()


def _main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("REPRIEVE_RECORD_HTTP") == "1":
        try:
            _install(here)
        except BaseException as error:  # noqa: BLE001 - told, and the program ends
            # site would print it and go on; then calls would leave that nobody wrote down
            message = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            hints = "".join(f"\nHint: {hint}" for hint in getattr(error, "hints", ()))
            sys.stderr.write(f"Error: HTTP calls can't be recorded, so nothing is run: {message}{hints}\n")
            sys.stderr.flush()
            os._exit(int(getattr(error, "exit_code", 70)))
    _chain(here)


_main()
