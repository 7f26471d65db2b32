"""Compare every story with what is expected; with --record, make what it gives now the expectation.

    cd tests && python -m golden.record [--record] [STORY…]

Without a STORY: all of them.
"""

from __future__ import annotations

import difflib
import sys
from concurrent.futures import ProcessPoolExecutor

from golden.tell import EXPECTED, STORIES, tell, text


def _told(name: str) -> str:
    return text(tell(STORIES[name]))


def main(args: list[str]) -> int:
    """Exit code 1 if something differs and was not recorded."""
    is_recording = "--record" in args
    names = [arg for arg in args if arg != "--record"] or sorted(STORIES)
    differs = 0
    with ProcessPoolExecutor() as pool:
        for name, new in zip(names, pool.map(_told, names), strict=True):
            path = EXPECTED / f"{name}.json"
            old = path.read_text() if path.exists() else ""
            if old == new:
                continue
            differs += 1
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "now", n=2))
            if is_recording:
                path.write_text(new)
    if is_recording:
        for path in EXPECTED.glob("*.json"):
            if path.stem not in STORIES:
                path.unlink()
    print(f"{differs} of {len(names)} differ" + (", recorded" if is_recording else ""))
    return 1 if differs and not is_recording else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
