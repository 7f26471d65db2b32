"""What is swept: each scene prepares a world, names the command that is struck, and judges what is left afterwards.

The judgement is always the same in kind: the tree is what it was or what it should become, never a mix; every
checkpoint that was acknowledged, or is merely listed, gives its tree back; the command can be repeated; redo works;
no lock is stale and nothing is left behind.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from reprieve.files.promised import text_of
from reprieve.model.timeline import CHECKPOINT, Draft
from reprieve.model.window import Window
from reprieve.store import promises
from support import worlds
from support.forkserver import LOOK, MOVE, READ, Fault, Ran
from support.site import Site
from support.tree import Fingerprint, diff_fingerprints, fingerprint

CLEAN_FAILURES = frozenset({3, 5, 6, 10, 11, 12, 13})  # exit codes by which a shortage or an I/O error may be told
NAMES_OF_SHORTAGE = (
    "full",
    "space",
    "disk",
    "input/output",
    "i/o",
    "quota",
    "files",
    "interrupt",
    "unavailable",
    "too large",
    "unable to open",
    "unable to get",
    "lost its database",
    "read-only",
)


@dataclass
class Facts:
    """What the world was before the command, and what it should be after it."""

    argv: tuple[str, ...]
    start: Fingerprint
    target: Fingerprint  # equal to start where the command leaves the tree alone
    trees: dict[str, Fingerprint] = field(default_factory=dict)  # label of a checkpoint -> its tree
    ids: dict[str, str] = field(default_factory=dict)  # label -> id, of acknowledged checkpoints
    starts: list[Fingerprint] = field(
        default_factory=list
    )  # what it was before a move that was done in part, newest first
    unprotected: frozenset[bytes] = frozenset()  # what the move could not read, named and left alone
    loose: tuple[str, ...] = ()  # fields that do not count when the tree is compared with the target


@dataclass(frozen=True)
class Scene:
    """A command to be struck, in a world of its own."""

    name: str
    prepare: Callable[[Site], Facts]
    finish: Callable[[Site, Facts, list[str]], None]
    follow: tuple[tuple[str, ...], ...] = (("status",), ("checkpoint", "next"))  # what people may run next


def judge(site: Site, scene: Scene, facts: Facts, ran: Ran, fault: Fault) -> list[str]:
    """Everything that is wrong after the strike; empty if it was survived."""
    wrong: list[str] = []
    killed = fault.mode in ("kill", "kill_after")
    if killed and (ran.code != -9 or not ran.fired):
        return [f"the kill did not happen: {ran}"]
    if not killed:
        wrong += _judge_answer(ran, fault)
    state = _state(site, facts)
    if ran.code == 0 and state not in ("target", "both"):
        wrong.append(f"exit code 0, but the tree is {state}: {site.differs(facts.target, ignore=facts.loose)}")
    can_take_back = fault.mode != "errno_from" or not fault.mask & MOVE
    if ran.code not in (0, -9) and state == "mixed" and can_take_back and not ran.timed_out:
        if _is_told_in_part(site, facts, ran, fault):
            facts.starts.insert(0, facts.start)
            facts.start, facts.unprotected = site.look(), _not_undone(ran)
        elif not is_nearly(site, facts):
            wrong.append(f"it failed and left a mixed tree: {_nearest(site, facts)}")
    if facts.start is facts.target and state == "mixed":
        wrong.append(f"it changed the tree: {site.differs(facts.start)}")
    acked = _acknowledged(ran)
    follow = random.Random(f"{scene.name} {fault}").choice((*scene.follow, facts.argv))
    after = site.run(*follow)
    if after.code not in (0, 1) and not (follow == facts.argv and after.code in (2, 5)):
        wrong.append(f"the next command failed: {after}")
    state = _state(site, facts)
    if state == "mixed":
        wrong.append(f"the tree is a mix after {' '.join(follow)}: {_nearest(site, facts)}")
    facts.trees.setdefault("next", site.look())
    with site.in_one_process():  # the strike and what came next had processes of their own
        scene.finish(site, facts, wrong)
        wrong += check_store(site, facts, acked)
    if touched := worlds.touched_outside(site.tree):
        wrong.append(f"something outside the tree was touched: {touched}")
    return wrong


def _judge_answer(ran: Ran, fault: Fault) -> list[str]:
    wrong = []
    if ran.timed_out:
        wrong.append(f"it hung: {ran}")
    elif ran.code < 0:
        wrong.append(f"it died of signal {-ran.code}: {ran}")
    elif ran.code == 70 or "Traceback" in ran.err:
        wrong.append(f"it ended with a bug: {ran}")
    elif ran.code and fault.mode.startswith("errno"):
        may_conflict = fault.mask & (READ | LOOK) and ran.code == 4  # what cannot be read is not as it was left
        if ran.code not in CLEAN_FAILURES and not may_conflict:
            wrong.append(f"the exit code is not that of a failing disk: {ran}")
        elif not may_conflict and not any(word in (ran.err + ran.out).lower() for word in NAMES_OF_SHORTAGE):
            wrong.append(f"the message does not name the cause: {ran}")
    elif ran.code and fault.mode == "short":
        wrong.append(f"a short write or read is no failure: {ran}")
    return wrong


def check_store(site: Site, facts: Facts, acked: dict[str, set[str]]) -> list[str]:
    """verify passes, nothing is left behind that gc would not remove, every listed checkpoint gives its tree back."""
    wrong = []
    verified = site.run("verify")
    if verified.code != 0:
        wrong.append(f"verify: {verified}")
    if site.litter():  # scratch of killed processes is gc's to remove (docs/format.md)
        collected = site.run("gc")
        wrong += [f"store: {line}" for line in site.litter()]
        if collected.code != 0:
            wrong.append(f"gc: {collected}")
    log = site.run("log", "--all", "--json")
    if log.code != 0:
        return [*wrong, f"log: {log}"]
    listed = {e["id"]: e.get("label", "") for e in log.json["entries"] if e["kind"] == "checkpoint"}
    for id in [*facts.ids.values(), *acked]:
        if id not in listed:
            wrong.append(f"acknowledged checkpoint {id} is not on the timeline")
    for id, label in listed.items():
        if label not in facts.trees:
            continue  # safety checkpoints have no label of ours; redo proves them
        back = site.run("rollback", id)
        differences = _without(site.differs(facts.trees[label]), acked.get(id, set()))
        told = (0, 6) if acked.get(id) else (0,)  # partly, because of what it named as not protected
        if back.code not in told or differences:
            wrong.append(f"checkpoint {label!r} does not come back: {back} {differences}")
    return wrong


def _without(differences: list[str], gaps: set[str]) -> list[str]:
    """Differences at paths that the checkpoint named as not protected are told, so they are no surprise."""
    return [line for line in differences if not any(repr(gap.encode()) in line for gap in gaps)]


def _acknowledged(ran: Ran) -> dict[str, set[str]]:
    """Ids that were told to the caller before it ended, each with the gaps that were told with it."""
    try:
        answer = json.loads(ran.out)
    except ValueError:
        return {}
    made = answer.get("checkpoint") or {}
    gaps = {gap["path"] for gap in made.get("gaps", [])}
    return {made["id"]: gaps} if answer.get("ok") and "id" in made else {}


def _state(site: Site, facts: Facts) -> str:
    now = site.look()
    is_start = now == facts.start
    is_target = not diff_fingerprints(facts.target, now, ignore=facts.loose)
    return "both" if is_start and is_target else "start" if is_start else "target" if is_target else "mixed"


def _is_told_in_part(site: Site, facts: Facts, ran: Ran, fault: Fault) -> bool:
    """Done but for what could not be read, each such path named: exit code 6 (partly done)."""
    if ran.code != 6 or not fault.mask & (READ | LOOK):
        return False
    now = site.look()
    named = _not_undone(ran)

    def is_named(path: bytes) -> bool:
        return _is_at_or_below(path, named)

    def is_accounted_for(path: bytes) -> bool:
        was, wanted, got = facts.start.get(path), facts.target.get(path), now.get(path)
        if is_named(path):  # left alone, to the last field; only its other names may have gone
            return got == was or (was is not None and got is not None and got._replace(group=was.group) == was)
        if wanted is not None and got is not None and wanted.group != got.group:
            # its file has another name that was left alone, so the two cannot be one file
            return got._replace(group=wanted.group) == wanted and any(
                is_named(q) for q, node in facts.target.items() if node.group == wanted.group
            )
        return got is not None and got.kind == "d" and any(_is_below(q, path) for q in named)

    left = [p for p in facts.target.keys() | now.keys() if facts.target.get(p) != now.get(p)]
    return bool(named) and all(map(is_accounted_for, left))


def _not_undone(ran: Ran) -> frozenset[bytes]:
    lines = re.findall(r"^ *! not undone (.*?): ", ran.out, re.MULTILINE)
    return frozenset(line.encode("utf-8", "surrogateescape") for line in lines)


def _is_at_or_below(path: bytes, places: frozenset[bytes]) -> bool:
    return any(path == place or _is_below(path, place) for place in places)


def _without_lost_groups(tree: Fingerprint, wanted: Fingerprint, unprotected: frozenset[bytes]) -> Fingerprint:
    """The tree as it should be but for hard links to what was not protected: that they were links is not known."""
    parted = {node.group for path, node in wanted.items() if node.group and _is_at_or_below(path, unprotected)}
    paths = {path for path, node in wanted.items() if node.group in parted}
    return {path: node._replace(group=b"") if path in paths else node for path, node in tree.items()}


def _is_below(path: bytes, folder: bytes) -> bool:
    return not folder or path.startswith(folder + b"/")


def is_nearly(site: Site, facts: Facts) -> bool:
    """A failed command may leave its staging directory and times of folders to the next one, but no file half-way."""
    stages = [os.fsencode(path.name) for path in site.tree.glob(".reprieve-*")]
    now = fingerprint(site.tree, skip=stages)  # also not as further names of hard links
    return any(
        not diff_fingerprints(_files(wanted), _files(now)) and _folders(wanted) == _folders(now)
        for wanted in (facts.start, facts.target)
    )


def _files(tree: Fingerprint) -> Fingerprint:
    return {path: node for path, node in tree.items() if node.kind != "d"}


def _folders(tree: Fingerprint) -> set[bytes]:
    return {path for path, node in tree.items() if node.kind == "d"}


def _nearest(site: Site, facts: Facts) -> list[str]:
    a, b = site.differs(facts.start), site.differs(facts.target, ignore=facts.loose)
    return ["against start:", *a] if len(a) <= len(b) else ["against target:", *b]


# --- the scenes


def _fresh(site: Site) -> Fingerprint:
    worlds.fifty(site.tree)
    return site.look()


def _prepare_init(site: Site) -> Facts:
    start = _fresh(site)
    return Facts(("init", "--json"), start, start, {"killed": start, "whole": start})


def _finish_init(site: Site, facts: Facts, wrong: list[str]) -> None:
    for argv in (("init",), ("checkpoint", "whole")):
        ran = site.run(*argv)
        if ran.code != 0:
            wrong.append(f"after a killed init: {ran}")
    worlds.wreck(site.tree)


def _prepare_first(site: Site) -> Facts:
    start = _fresh(site)
    site.ok("init")
    return Facts(("checkpoint", "killed", "--json"), start, start, {"killed": start, "again": start})


def _prepare_incremental(site: Site) -> Facts:
    base = _fresh(site)
    id = site.checkpoint("base")
    worlds.two_of_fifty(site.tree)
    start = site.look()
    trees = {"base": base, "killed": start, "again": start}
    return Facts(("checkpoint", "killed", "--json"), start, start, trees, {"base": id})


def _finish_checkpoint(site: Site, facts: Facts, wrong: list[str]) -> None:
    again = site.run("checkpoint", "again", "--json")
    if again.code != 0:
        wrong.append(f"checkpoint does not work again: {again}")
    if differences := site.differs(facts.start):
        wrong.append(f"the tree was changed: {differences}")
    worlds.clear(site.tree)


PROMISED = "promised01"  # id of an entry that was promised and is not on the timeline yet


def _prepare_promised(site: Site) -> Facts:
    """An agent had its answer before the entry was on the timeline; the files of its call are there already."""
    base = _fresh(site)
    id = site.checkpoint("base")
    workspace = next((site.home / "index").iterdir()).name
    promises.prepare(str(site.home), workspace)
    window = Window("window0001", "claude-code:s", "call:c1", opened=PROMISED)
    draft = Draft(CHECKPOINT, 1_700_000_000_000_000_000, "", "before Bash: make", data="{}", id=PROMISED)
    with open(promises.path_of(str(site.home), workspace), "r+b") as file:
        assert promises.write(file.fileno(), text_of(draft, window))
    worlds.two_of_fifty(site.tree)
    start = site.look()
    trees = {"base": base, "before Bash: make": base, "killed": start, "again": start}
    return Facts(("checkpoint", "killed", "--json"), start, start, trees, {"base": id, "promised": PROMISED})


def _finish_promised(site: Site, facts: Facts, wrong: list[str]) -> None:
    found = [entry for entry in site.run("log", "--all", "--json").json["entries"] if entry["id"] == PROMISED]
    if len(found) != 1:
        wrong.append(f"the promised entry is {len(found)} times on the timeline")
    _finish_checkpoint(site, facts, wrong)


def _prepare_rollback(site: Site) -> Facts:
    target = _fresh(site)
    id = site.checkpoint("base")
    worlds.wreck(site.tree)
    start = site.look()
    return Facts(("rollback", id), start, target, {"base": target}, {"base": id})


def _prepare_revert(site: Site) -> Facts:
    base = _fresh(site)
    id = site.checkpoint("base")
    worlds.wreck(site.tree)
    start = site.look()
    target = {p: n for p, n in start.items() if not _is_in_a(p)} | {p: n for p, n in base.items() if _is_in_a(p)}
    return Facts(("revert", "a", "--to", id), start, target, {"base": base}, {"base": id}, loose=("dir_mtime_ns",))


def _is_in_a(path: bytes) -> bool:
    return path == b"a" or path.startswith(b"a/")


def _finish_move(site: Site, facts: Facts, wrong: list[str]) -> None:
    """Run it again, then take it back by redo, then go there again."""
    again = site.run(*facts.argv)
    if again.code != 0 or (differences := site.differs(facts.target, ignore=facts.loose)):
        wrong.append(f"the second run does not reach the target: {again} {differences if again.code == 0 else ''}")
    for start in (facts.start, *facts.starts):
        redone, now = site.run("redo"), site.look()
        known = [_without_lost_groups(tree, start, facts.unprotected) for tree in (start, now)]
        if redone.code != 0 or (differences := diff_fingerprints(*known, limit=6)):
            wrong.append(f"redo does not bring the start back: {redone} {differences if redone.code == 0 else ''}")


def _prepare_redo(site: Site) -> Facts:
    start = _fresh(site)
    id = site.checkpoint("base")
    worlds.wreck(site.tree)
    target = site.look()
    site.ok("rollback", id)
    return Facts(("redo",), start, target, {"base": start}, {"base": id})


def _finish_redo(site: Site, facts: Facts, wrong: list[str]) -> None:
    if _state(site, facts) == "start":
        again = site.run("redo")
        if again.code != 0 or (differences := site.differs(facts.target)):
            wrong.append(f"redo does not work again: {again} {differences if again.code == 0 else ''}")
    site.run("redo")  # nothing is left to be redone; it must not move anything
    if differences := site.differs(facts.target):
        wrong.append(f"a redo too many moved the tree: {differences}")
    back = site.run("rollback", facts.ids["base"])
    redone = site.run("redo")
    if back.code or redone.code or (differences := site.differs(facts.target)):
        wrong.append(f"rollback and redo after it: {back} {redone} {differences if not redone.code else ''}")


def history_with_garbage(site: Site) -> Facts:
    """Three live checkpoints, and a pruned one whose content nobody needs any more."""
    first = _fresh(site)
    site.ok("init")
    ids, trees = {}, {}
    doomed = random.Random(9).randbytes(30_000)
    for n, label in enumerate(("doomed", "one", "two", "three")):
        if label == "doomed":
            (site.tree / "only here").write_bytes(doomed)
        elif n == 1:
            (site.tree / "only here").unlink()
        worlds.two_of_fifty(site.tree, seed=100 + n)
        ids[label] = site.checkpoint(label)
        trees[label] = site.look()
    start = trees["three"]
    assert start != first
    return Facts((), start, start, trees, ids)


def _prepare_gc(site: Site) -> Facts:
    facts = history_with_garbage(site)
    site.plant = "prune alone"
    site.ok("prune", "--keep-last", "3", "--keep-days", "0", "--yes")
    site.plant = ""
    for known in (facts.trees, facts.ids):
        del known["doomed"]
    facts.argv = ("gc",)
    return facts


def _prepare_prune(site: Site) -> Facts:
    facts = history_with_garbage(site)
    for known in (facts.trees, facts.ids):
        del known["doomed"]
    facts.argv = ("prune", "--keep-last", "3", "--keep-days", "0", "--yes")
    return facts


def _prepare_forget(site: Site) -> Facts:
    facts = history_with_garbage(site)
    del facts.trees["doomed"]
    facts.argv = ("forget", "only here", "--yes")
    return facts


def _finish_care(site: Site, facts: Facts, wrong: list[str]) -> None:
    again = site.run(*facts.argv)
    if again.code != 0:
        wrong.append(f"it does not work again: {again}")
    if differences := site.differs(facts.start):
        wrong.append(f"the tree was changed: {differences}")


SCENES = {
    scene.name: scene
    for scene in (
        Scene("init", _prepare_init, _finish_init, (("init",), ("checkpoint", "next"))),
        Scene("first", _prepare_first, _finish_checkpoint),
        Scene("incremental", _prepare_incremental, _finish_checkpoint),
        Scene("promised", _prepare_promised, _finish_promised),
        Scene("rollback", _prepare_rollback, _finish_move),
        Scene("revert", _prepare_revert, _finish_move),
        Scene("redo", _prepare_redo, _finish_redo),
        Scene("gc", _prepare_gc, _finish_care),
        Scene("prune", _prepare_prune, _finish_care, (("status",), ("gc",))),  # one more checkpoint would push one out
        Scene("forget", _prepare_forget, _finish_care),
    )
}
