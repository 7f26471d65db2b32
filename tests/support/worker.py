"""Work for many processes at once: a `main` for the fork server that repeats commands in one process.

checkpoints NAME N      N times: change a file of one's own, take a checkpoint; prints one JSON line per checkpoint
repeat SECONDS -- ARGV  run ARGV again and again for that long; prints exit codes with their counts
anything else           is a command line of reprieve
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path

from reprieve.cli.main import main as reprieve


def main(argv: list[str]) -> int:
    if argv[0] == "checkpoints":
        return _checkpoints(argv[1], int(argv[2]))
    if argv[0] == "repeat":
        return _repeat(float(argv[1]), argv[3:])
    return reprieve(argv)


def _checkpoints(name: str, times: int) -> int:
    for n in range(times):
        Path(f"{name}.txt").write_text(f"{name} {n}\n")
        begun = time.monotonic()
        code, out, err = _run(["checkpoint", f"{name}-{n}", "--json"])
        seconds = time.monotonic() - begun
        answer = json.loads(out) if out else {}
        id = answer.get("checkpoint", {}).get("id", "")
        print(json.dumps({"code": code, "id": id, "seconds": seconds, "err": "" if code == 0 else err + out}))
    return 0


def _repeat(seconds: float, argv: list[str]) -> int:
    codes: dict[int, int] = {}
    bad: list[str] = []
    n, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        n += 1
        args = [a.replace("{n}", str(n)) for a in argv]
        if args[0] == "write":
            Path(args[1]).write_text(f"{n}\n" * 50)
            args = args[2:]
        code, out, err = _run(args)
        codes[code] = codes.get(code, 0) + 1
        if code in (70, 12, 13, 10) and len(bad) < 5:
            bad.append(out + err)
    print(json.dumps({"codes": codes, "bad": bad}))
    return 0


def _run(argv: list[str]) -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = reprieve(argv)
    return code, *(stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err))  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
