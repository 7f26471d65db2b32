"""Tables out of measurements: milliseconds, ratios to git, and the targets with what was reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.measure import Series
from benchmarks.ours import ReprieveDirect, ReprieveLibrary, ReprieveProcess
from benchmarks.peers import Borg, Copy, GitCommit, GitTree, Restic
from benchmarks.rounds import (
    CHANGED_1,
    CHANGED_100,
    FIRST,
    OPERATIONS,
    RESTORE_1,
    RESTORE_100,
    RESTORE_ALL,
    UNCHANGED,
    Row,
)

PROCESS, DIRECT, LIBRARY = ReprieveProcess.name, ReprieveDirect.name, ReprieveLibrary.name
GIT = GitCommit.name
AHEAD_OF = (Restic.name, Borg.name, Copy.name)
DISK_FIRST, DISK_CHURNED = "disk after first", "disk after 50"

# (what, whose, limit at 10,000 files, limit at 100,000 files), as reprieve/git
TARGETS = [
    (FIRST, PROCESS, 0.15, 0.15),
    (UNCHANGED, PROCESS, 0.6, 0.4),
    (UNCHANGED, LIBRARY, 0.3, 0.3),
    (CHANGED_1, PROCESS, 0.6, 0.4),
    (CHANGED_100, PROCESS, 0.4, 0.4),
    (RESTORE_1, PROCESS, 0.6, 0.5),
    (RESTORE_100, PROCESS, 0.7, 0.5),
    (RESTORE_ALL, PROCESS, 0.3, 0.3),
    (DISK_FIRST, PROCESS, 0.6, 0.6),
    (DISK_CHURNED, PROCESS, 1.0, 1.0),
]
MEMORY_LIMIT_KB = 150 * 1024
GROWTH_LIMIT = 1.2

Rows = dict[str, Row]


def value_of(row: Row, what: str) -> float | None:
    """A measured number of a row by its name: milliseconds or kilobytes; None if it was not measured."""
    if what == DISK_FIRST:
        return row.disk_first_kb or None
    if what == DISK_CHURNED:
        return row.disk_churned_kb or None
    series = row.series.get(what)
    return series.median_ms if series and series.seconds else None


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    out = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    out += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(out)


def times(rows: Rows) -> str:
    """Medians in milliseconds, and disk in kB."""
    lines = []
    for row in rows.values():
        cells = [_number(value_of(row, what)) for what in (*OPERATIONS, DISK_FIRST, DISK_CHURNED)]
        lines.append([row.name, *cells, row.exact or "–", row.note or ""])
    return table(["ms (median)", *OPERATIONS, "disk kB, first", "disk kB, after 50", "restored", ""], lines)


def ratios(rows: Rows) -> str:
    """Each system's number divided by git's (add -A + commit / reset --hard) in the same run."""
    git = rows.get(GIT)
    if git is None or git.note:
        return "git was not measured, so there are no ratios."
    lines = []
    for row in rows.values():
        cells = []
        for what in (*OPERATIONS, DISK_FIRST, DISK_CHURNED):
            mine, gits = value_of(row, what), value_of(git, what)
            cells.append(f"{mine / gits:.2f}" if mine and gits else "–")
        lines.append([row.name, *cells])
    return table(["ratio to git commit", *OPERATIONS, "disk, first", "disk, after 50"], lines)


def targets(rows: Rows, tree: str) -> list[dict[str, object]]:
    """Each target with the ratio that was reached, for the trees that have targets; exact restores for all."""
    found = [_exactness(rows[name]) for name in (PROCESS, DIRECT, LIBRARY) if name in rows and rows[name].series]
    if tree not in ("10000", "100000"):
        return found
    for what, whose, at_10k, at_100k in TARGETS:
        limit = at_10k if tree == "10000" else at_100k
        found.append(_target(f"{what}, {whose}, against git commit", rows, what, whose, GIT, limit))
    for peer in AHEAD_OF:
        if peer in rows and not rows[peer].note:
            for what in OPERATIONS:
                found.append(_target(f"{what}, ahead of {peer}", rows, what, PROCESS, peer, 1.0))
    if tree == "100000" and DIRECT in rows:
        peak = max((s.peak_kb for s in rows[DIRECT].series.values()), default=0)
        found.append(_judged("memory, kB", peak, MEMORY_LIMIT_KB))
    return found


def _target(label: str, rows: Rows, what: str, whose: str, against: str, limit: float) -> dict[str, object]:
    mine = value_of(rows[whose], what) if whose in rows else None
    theirs = value_of(rows[against], what) if against in rows else None
    result = _judged(label, mine / theirs if mine and theirs else None, limit)
    tree_row = rows.get(GitTree.name)
    if against == GIT and tree_row is not None and not tree_row.note:
        other = value_of(tree_row, what)
        result["against_write_tree"] = mine / other if mine and other else None
    return result


def _exactness(row: Row) -> dict[str, object]:
    """Speed is worth nothing if what comes back is not what was there."""
    result = _judged(
        f"restored trees that differ, {row.name}", int(row.exact not in ("", "exact") or bool(row.note)), 0
    )
    return {**result, "detail": row.note or row.exact}


def _judged(label: str, reached: float | None, limit: float) -> dict[str, object]:
    verdict = "not measured" if reached is None else "met" if reached <= limit else "MISSED"
    return {"target": label, "limit": limit, "reached": reached, "verdict": verdict}


def target_table(found: Iterable[dict[str, object]]) -> str:
    lines = []
    for target in found:
        reached, other = target["reached"], target.get("against_write_tree")
        lines.append(
            [
                str(target["target"]),
                f"{target['limit']:,}",
                f"{reached:,.2f}" if isinstance(reached, float | int) else "–",
                f"{other:.2f}" if isinstance(other, float) else "",
                str(target["verdict"]),
            ]
        )
    return table(["target", "limit", "reached", "against write-tree", ""], lines)


def processor(rows: Rows) -> str:
    """Processor time, user and system, of all threads: steadier than the clock where others use the machine too."""
    shown = [row for row in rows.values() if row.series]
    lines = [
        [r.name, *(_number(r.of(what).cpu_ms) if any(r.of(what).cpu_s) else "–" for what in OPERATIONS)] for r in shown
    ]
    return table(["processor ms (median)", *OPERATIONS], lines)


def memory(rows: Rows) -> str:
    """The largest resident set per operation, MB."""
    shown = [row for row in rows.values() if row.series]
    lines = [
        [r.name, *(f"{r.of(what).peak_kb / 1024:.0f}" if r.of(what).peak_kb else "–" for what in OPERATIONS)]
        for r in shown
    ]
    return table(["peak memory, MB", *OPERATIONS], lines)


def growth_targets(series: dict[str, dict[str, Series]]) -> list[dict[str, object]]:
    """How much slower an unchanged checkpoint is in an old store than in a young one."""
    found = []
    for name, by_age in series.items():
        young, old = by_age
        ratio = by_age[old].median_ms / by_age[young].median_ms
        found.append(_judged(f"unchanged, {old} against {young}, {name}", ratio, GROWTH_LIMIT))
    return found


def as_json(rows: Rows) -> list[dict[str, object]]:
    """Every single measurement."""
    return [
        {
            "system": row.name,
            "note": row.note,
            "restored": row.exact,
            "disk_first_kb": row.disk_first_kb,
            "disk_churned_kb": row.disk_churned_kb,
            "churn_s": row.churn.seconds,
            "operations": {
                what: {"seconds": s.seconds, "cpu_s": s.cpu_s, "peak_kb": s.peak_kb} for what, s in row.series.items()
            },
        }
        for row in rows.values()
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
