"""What a coding agent's hook costs before every step, against `git status` on the same tree in the same run.

python -m benchmarks.hook                  10,000 files in a repository, unchanged, thirty rounds
python -m benchmarks.hook --runs 5         a look

The whole process is measured, as an agent starts it: payload on standard input, answer on standard output; with the
resident helper running, as it is after the first call, and without it. What starting any process takes has a row of its
own: less is not possible. Before each of them there is a pause, as there is between two steps of an agent; `--pause 0`
measures what happens without one. The exit code is 0 if both targets are met (before a call at most as long as `git
status` without the helper, and a tenth of that with it), 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import Series, Took
from benchmarks.ours import REPOSITORY, install, start_helper, stop_helper, wait_until_followed
from benchmarks.trees import small_files

BEFORE, BEFORE_ALONE = "hook before a call", "hook before a call, no helper"
TARGETS = {BEFORE_ALONE: 1.0, BEFORE: 0.1}
ROWS = (
    "git status",
    "a process that does nothing",
    BEFORE,
    "hook after a call",
    "hook before a read",
    "hook with a prompt",
    BEFORE_ALONE,
    "hook before a read, no helper",
)


def timed(argv: Sequence[str], data: bytes, *, cwd: Path, env: Mapping[str, str], pause_s: float = 0.0) -> Took:
    """One process from start to end."""
    time.sleep(pause_s)
    started = time.perf_counter()
    done = subprocess.run(argv, input=data, cwd=cwd, env=env, capture_output=True)
    seconds = time.perf_counter() - started
    if done.returncode or b"reprieve:" in done.stderr or b"deny" in done.stdout:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stdout!r} {done.stderr!r}")
    return Took(seconds)


def payload(event: str, project: Path, call: int, **fields: object) -> bytes:
    common = {"session_id": "bench", "cwd": str(project), "hook_event_name": event, "permission_mode": "default"}
    return json.dumps({**common, "tool_use_id": f"toolu_{call}", **fields}).encode()


def repository(project: Path, files: int) -> None:
    """A committed, packed repository whose files are old enough for git to trust its index."""
    small_files(project, files)
    for path in project.rglob("*"):
        os.utime(path, ns=(1_700_000_000_000_000_000,) * 2, follow_symlinks=False)
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@example.org", "-c", "gc.auto=0"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"], ["gc", "-q"], ["status"]):
        subprocess.run([*git, *words], cwd=project, check=True, stdout=subprocess.DEVNULL)


def measure(program: Path, project: Path, env: Mapping[str, str], runs: int, pause_s: float) -> dict[str, Series]:
    """Rounds in which every row has its turn, so that a busy moment of the machine hits all alike."""
    series = {row: Series() for row in ROWS}
    bash = {"tool_name": "Bash", "tool_input": {"command": "make", "description": "build"}}
    read = {"tool_name": "Read", "tool_input": {"file_path": str(project / "x")}}

    def hook(event: str, call: int, *, helper: str = "on", **fields: object) -> Took:
        data = payload(event, project, call, **fields)
        argv = [str(program), "hook", "claude-code", event]
        return timed(argv, data, cwd=project, env={**env, "REPRIEVE_HELPER": helper}, pause_s=pause_s)

    def other(*argv: str) -> Took:
        return timed(argv, b"", cwd=project, env=env, pause_s=pause_s)

    hook("UserPromptSubmit", 0, prompt="begin", prompt_id="p")
    start_helper(program.parent, cwd=project, env=env)
    for call in (-2, -1):  # the first is when it begins to follow the tree, the second says since when
        hook("PreToolUse", call, **bash)
        hook("PostToolUse", call, tool_response={}, **bash)
        wait_until_followed(Path(env["REPRIEVE_HOME"]))
    for number in range(1, runs + 1):
        series["git status"].add(other("git", "status", "--porcelain"))
        series["a process that does nothing"].add(other("true"))
        series[BEFORE].add(hook("PreToolUse", number, **bash))
        series["hook after a call"].add(hook("PostToolUse", number, tool_response={}, **bash))
        series["hook before a read"].add(hook("PreToolUse", number, **read))
        alone = runs + number
        series[BEFORE_ALONE].add(hook("PreToolUse", alone, helper="off", **bash))
        hook("PostToolUse", alone, helper="off", tool_response={}, **bash)
        series["hook before a read, no helper"].add(hook("PreToolUse", alone, helper="off", **read))
        series["hook with a prompt"].add(hook("UserPromptSubmit", number, prompt="go on", prompt_id=f"p{number}"))
    return series


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.hook", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds before each process")
    parser.add_argument("--scratch", type=Path, help="folder to work in, on the disk to measure")
    parser.add_argument("--source", type=Path, default=REPOSITORY, help="measure the reprieve of another checkout")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="reprieve-hook-") as folder:
        place = Path(folder)
        programs = install(place / "installed", repository=options.source)
        project = place / "project"
        project.mkdir()
        repository(project, options.files)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "REPRIEVE_", "GIT_"))}
        env |= {"REPRIEVE_HOME": str(place / "home"), "REPRIEVE_CONFIG": str(place / "none.toml"), "HOME": folder}
        env["GIT_OPTIONAL_LOCKS"] = "0"  # its lock file would change .git, and the tree is to stay as it is
        try:
            series = measure(programs / "reprieve", project, env, options.runs, options.pause)
        finally:
            stop_helper(place / "home")
    base = series["git status"].median_ms
    print(
        f"\n{options.files:,} files, unchanged; medians of {options.runs} rounds\n\n"
        "| | ms | × git status |\n|---|--:|--:|"
    )
    for row in ROWS:
        ms = series[row].median_ms
        print(f"| {row} | {ms:.1f} | {ms / base:.2f} |")
    missed = [row for row, limit in TARGETS.items() if series[row].median_ms > limit * base]
    print()
    for row, limit in TARGETS.items():
        print(f"Target: {row} takes at most {limit} × git status: {'missed' if row in missed else 'met'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
