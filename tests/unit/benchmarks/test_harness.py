"""The benchmark tells the truth: it sees every difference in a restored tree, and judges by the right ratio."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks import report, trees
from benchmarks.measure import Failed, Took, disk_kb, process
from benchmarks.peers import Copy
from benchmarks.rounds import UNCHANGED, Row, worse


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    trees.small_files(root, 60)
    return root


def test_the_same_seed_gives_the_same_tree_and_the_same_changes(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    trees.small_files(other, 60)
    for root in (tree, other):
        trees.wreck(root, trees.files_of(root), 30, seed=3)
    assert {p: v[:2] for p, v in trees.fingerprint(tree).items()} == {
        p: v[:2] for p, v in trees.fingerprint(other).items()
    }


def test_a_copy_is_exact_and_every_difference_is_seen(tree: Path, tmp_path: Path) -> None:
    wanted = trees.fingerprint(tree)
    files = trees.files_of(tree)
    copy = Copy(tree, tmp_path / "store")
    copy.begin()
    _, save = copy.save()
    for damage in (
        lambda: trees.edit(tree, files, 1, seed=1),
        lambda: trees.wreck(tree, files, 20, seed=2),
        lambda: trees.rewrite(tree, files),
        lambda: trees.empty(tree),
        lambda: (tree / files[0]).unlink(),
    ):
        damage()
        assert trees.compare(wanted, trees.fingerprint(tree)).startswith("WRONG")
        copy.restore(save)
        assert trees.compare(wanted, trees.fingerprint(tree)) == "exact"
    (tree / "more").write_bytes(b"")
    assert trees.compare(wanted, trees.fingerprint(tree)) == "1 left over"
    (tree / "more").unlink()
    (tree / files[0]).chmod(0o600)
    assert trees.compare(wanted, trees.fingerprint(tree)) == "bytes"
    assert worse("exact", "bytes") == "bytes" and worse("WRONG: 1", "exact") == "WRONG: 1"


def test_targets_are_judged_by_medians_against_git() -> None:
    rows = {name: Row(name) for name in (report.GIT, report.PROCESS, report.LIBRARY)}
    for name, values in ((report.GIT, (1, 2, 9)), (report.PROCESS, (1, 1.1, 50)), (report.LIBRARY, (0.7, 0.7, 0.7))):
        for seconds in values:
            rows[name].of(UNCHANGED).add(Took(seconds))
    judged = {str(t["target"]): t for t in report.targets(rows, "10000")}
    process_target = judged[f"unchanged, {report.PROCESS}, against git commit"]
    assert process_target["reached"] == pytest.approx(0.55) and process_target["verdict"] == "met"
    assert judged[f"unchanged, {report.LIBRARY}, against git commit"]["verdict"] == "MISSED"
    assert judged[f"first, {report.PROCESS}, against git commit"]["verdict"] == "not measured"
    assert [t["verdict"] for t in report.targets(rows, "1000")] == ["met", "met"]
    rows[report.PROCESS].exact = "bytes"
    assert [t["verdict"] for t in report.targets(rows, "1000")] == ["MISSED", "met"]


def test_processes_are_measured_and_failures_are_loud(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    took = process(["sh", "-c", "echo out; echo err >&2"], cwd=tmp_path, env=env)
    assert took.output == "out\nerr\n" and took.seconds > 0 and took.peak_kb > 0
    with pytest.raises(Failed, match="ended with 3"):
        process(["sh", "-c", "exit 3"], cwd=tmp_path, env=env)


def test_disk_use_counts_hard_links_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    once = disk_kb(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert disk_kb(tmp_path) == once
    shutil.copy(tmp_path / "a", tmp_path / "c")
    assert disk_kb(tmp_path) == 2 * once
