"""Measure Reprieve and its peers side by side, print tables with ratios and targets, and write every number as JSON.

python -m benchmarks                        all trees, five rounds (hours)
python -m benchmarks --size 10000           one tree (about half an hour)
python -m benchmarks --size 1000 --quick    a look: one round, git and cp only
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.ours import REPOSITORY, ReprieveDirect, ReprieveLibrary, ReprieveProcess, install
from benchmarks.peers import PEERS, Copy, GitCommit, System
from benchmarks.rounds import Bench, growth
from benchmarks.trees import TREES

INSTALLABLE = {"restic": "restic", "borg": "borgbackup", "rsync": "rsync", "git": "git"}


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def install_peers(peers: list[type[System]]) -> None:
    """Get missing tools where that takes no question; a row says so where it did not work."""
    wanted = [INSTALLABLE[p.tool] for p in peers if p.missing() and p.tool in INSTALLABLE]
    if wanted and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing {', '.join(wanted)}")
        subprocess.run(["apt-get", "install", "-y", "-qq", *wanted], stdout=subprocess.DEVNULL, check=False)


def machine(scratch: Path) -> dict[str, object]:
    """What the numbers depend on."""
    mounts = sorted((line.split() for line in Path("/proc/mounts").read_text().splitlines()), key=lambda m: len(m[1]))
    at = [m[2] for m in mounts if str(scratch).startswith(m[1].rstrip("/") + "/")]
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "file_system": at[-1] if at else "unknown",
        "python": platform.python_version(),
        "git": git,
        "load_before": os.getloadavg()[0],
    }


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size", action="append", choices=list(TREES), help="tree to measure on; repeatable (default: all)"
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds per tree (default: 5)")
    parser.add_argument("--quick", action="store_true", help="one round, git and cp only, no churn, short history")
    parser.add_argument("--only", action="append", help="peers to measure, by a part of their name (default: all)")
    parser.add_argument("--no-churn", action="store_true", help="leave out the fifty checkpoints with 1 %% churn")
    parser.add_argument("--rewritten", action="store_true", help="also restore a tree in which every file was changed")
    parser.add_argument("--no-growth", action="store_true", help="leave out the 10th against the 1,000th checkpoint")
    parser.add_argument(
        "--scratch", type=Path, help="folder to work in, on the disk to measure (default: a temporary one)"
    )
    parser.add_argument("--source", type=Path, default=REPOSITORY, help="measure the reprieve of another checkout")
    parser.add_argument("--json", type=Path, dest="json_path", help="write every measurement there")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = parse(argv)
    peers = [GitCommit, Copy] if options.quick else list(PEERS)
    if options.only:
        peers = [p for p in PEERS if any(part in p.name for part in options.only)]
    install_peers(peers)
    sizes = options.size or list(TREES)
    runs = 1 if options.quick else options.runs
    results: dict[str, object] = {}
    judged: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="reprieve-benchmark-", dir=options.scratch) as folder:
        scratch = Path(folder).resolve()
        facts = machine(scratch)
        results["machine"] = facts
        print(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
        say("installing reprieve into an environment of its own")
        ReprieveDirect.bin = ReprieveLibrary.bin = install(scratch, repository=options.source)
        for size in sizes:
            try:
                bench = Bench(
                    size,
                    scratch=scratch,
                    systems=[*peers, ReprieveProcess, ReprieveDirect, ReprieveLibrary],
                    runs=runs,
                    has_rewritten=options.rewritten,
                    say=say,
                )
            except (subprocess.SubprocessError, OSError) as error:
                print(f"\n## {size}\n\nNot measured: the tree could not be made ({error}).")
                continue
            try:
                bench.run()
                if not options.quick and not options.no_churn:
                    bench.churn()
                found = report.targets(bench.rows, size)
                print(f"\n## {size} ({len(bench.files):,} files), medians of {runs} rounds\n")
                tables = (report.times, report.ratios, report.processor, report.memory)
                print(*(make(bench.rows) for make in tables), sep="\n\n")
                if found:
                    print("\n" + report.target_table(found))
                judged += found
                results[size] = {"systems": report.as_json(bench.rows), "targets": found, "files": len(bench.files)}
            finally:
                bench.close()
        if not options.no_growth:
            long = 100 if options.quick else 1000
            say(f"10th against {long}th checkpoint")
            series = growth(scratch, tree="1000" if options.quick else "10000", histories=(10, long), samples=40)
            found = report.growth_targets(series)
            print("\n## Length of history\n\n" + report.target_table(found))
            judged += found
            results["growth"] = {
                "targets": found,
                "seconds": {name: {age: s.seconds for age, s in ages.items()} for name, ages in series.items()},
            }
        facts["load_after"] = os.getloadavg()[0]
    print(f"\nload before {facts['load_before']:.1f}, after {facts['load_after']:.1f}")
    if options.json_path:
        options.json_path.write_text(json.dumps(results, indent=1) + "\n")
    missed = sum(target["verdict"] == "MISSED" for target in judged)
    print(f"\n{len(judged)} targets were measured, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
