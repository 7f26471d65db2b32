"""Histories of two agents and a person at work on the same files, and an oracle that knows who wrote which line.

Every line that is ever written is unique and says who wrote it, so after a rollback two sets tell the truth: whose
lines are there, and whose deletions were undone. A history is plain data made from a seed; without some of its steps
it is still a history, so that a failing one can be cut down.

    ("open", "A")  ("edit", "A", …)  ("close", "A")     a step of agent A; those of A and B may overlap
    ("edit", "P", …)                                    a person, only while no window is open
    ("checkpoint",)  ("rollback", …)  ("redo",)
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprieve.app import finding
from reprieve.errors import Conflict, Usage
from reprieve.model.plan import Report
from reprieve.model.reporter import Reporter
from support.histories import Step, Wrong
from support.tree import Fingerprint, diff_fingerprints, fingerprint

ACTORS = {"A": "agent:A", "B": "agent:B"}
NAMES = ("one", "two", "d/three", "d/four", "d/e/five", "new", "d/new", "d/e")
PERSON, SHARED = "P", "S"  # the word for a line that was written while both agents were at work


def generate(seed: int, *, spans: int = 9, overlap: float = 0.15, moves: bool = True) -> list[Step]:
    """The history of that seed: spans of one actor each, sometimes of both agents at once, then what is taken back."""
    rnd = random.Random(seed)
    history: list[Step] = [
        ("make", name, rnd.choice((1, 3, 6, 12, 12, 20))) for name in NAMES[:5] if rnd.random() < 0.7
    ]
    history.append(("checkpoint",))
    for _ in range(rnd.randrange(2, spans)):
        who = rnd.choice("AABBPPP")
        if who == "P":
            history += [_edit(rnd, "P") for _ in range(rnd.choice((1, 1, 2, 4)))]
            if rnd.random() < 0.15:
                history.append(("checkpoint",))
        elif rnd.random() < overlap:
            order = ["A", "B"] if rnd.random() < 0.5 else ["B", "A"]
            history += [("open", order[0]), _edit(rnd, order[0]), ("open", order[1])]
            history += [_edit(rnd, rnd.choice("AB")) for _ in range(rnd.choice((1, 2)))]
            history += [("close", rnd.choice("AB")), _edit(rnd, rnd.choice("AB")), ("close", "A"), ("close", "B")]
        else:
            history += [("open", who), *(_edit(rnd, who) for _ in range(rnd.choice((1, 1, 2, 5)))), ("close", who)]
        if moves and rnd.random() < 0.08:
            history.append(_move(rnd))
            if rnd.random() < 0.3:
                history.append(("redo",))
    return history


def endings(seed: int) -> list[Step]:
    """What is tried at the end of a history, each from the same state: both agents, either one, and the choices."""
    rnd = random.Random(seed ^ 0x5EED)
    since = 0 if rnd.random() < 0.7 else rnd.randrange(100)
    choice = rnd.choice(("abort", "abort", "keep", "merge", "both"))
    return [("rollback", who, since, choice) for who in ("", "A", "B")]


def _move(rnd: random.Random) -> Step:
    return ("rollback", rnd.choice(("", "A", "B")), rnd.randrange(100), rnd.choice(("abort", "keep", "merge")))


def _edit(rnd: random.Random, who: str) -> Step:
    kinds = ("replace", "insert", "delete line", "append", "rewrite", "create", "delete", "rename", "delete folder")
    more = ("remove empty folders", "rename over")
    kind = rnd.choices(kinds + more, (8, 5, 4, 2, 1, 3, 2, 2, 0.4, 0.8, 0.3))[0]
    return ("edit", who, kind, rnd.randrange(1000), rnd.randrange(1000), rnd.randrange(1, 4))


@dataclass
class Facts:
    """What the model knows: who wrote each line and when, and who removed it from the tree and when."""

    written: dict[str, tuple[str, int]] = field(default_factory=dict)
    removed: dict[str, list[tuple[str, int]]] = field(default_factory=dict)


class Play:
    """One history on one tree."""

    def __init__(self, base: Path) -> None:
        self.root = base / "tree"
        self.root.mkdir(parents=True)
        os.environ["REPRIEVE_HOME"] = str(base / "home")
        self.ws = finding.open_workspace(str(self.root), create=True, reporter=Reporter())
        self.facts = Facts()
        self.clock = 0
        self.windows: dict[str, Any] = {}
        self.checkpoints: list[tuple[str, int, dict[str, list[str]]]] = []  # id, clock, lines by file
        self.spans: list[tuple[str, str]] = []  # (who, step name) of every window, in order
        self._span_at: list[tuple[int, str]] = []  # (clock, name) where spans begin; "" outside of all windows
        self._before: list[dict[str, list[tuple[str, int]]]] = []  # what was removed by whom before each rollback
        self.opened: list[int] = []  # when windows were opened
        self.is_plain = True  # no file was both moved and edited in one span, where nobody could tell what became of it
        self._touched: tuple[set[str], set[str]] = (set(), set())  # in this span: moved, edited
        self.counts = {"moves": 0, "conflicts": 0, "merges": 0, "redos": 0}

    def run(self, history: Iterable[Step]) -> None:
        """Play it; raises Wrong."""
        for number, step in enumerate(history):
            try:
                self.step(step)
            except Wrong as wrong:
                raise Wrong(f"step {number} {step!r}: {wrong}") from None

    def close(self) -> None:
        self.ws.close()

    def step(self, step: Step) -> None:
        verb = step[0]
        self.clock += 1
        if verb != "edit":
            self._touched = (set(), set())
        if verb == "make":
            self._write(step[1], [self._line(PERSON) for _ in range(step[2])])
        elif verb == "open":
            if step[1] not in self.windows:
                name = f"s{self.clock}"
                self.opened.append(self.clock)
                self._checkpointed(self.ws.open_window(ACTORS[step[1]], name))
                self.spans.append((step[1], name))
                self._span_at.append((self.clock, name))
        elif verb == "close":
            window = self.windows.pop(step[1], None)
            if window is not None:
                self.ws.close_window(window)
                self._span_at.append((self.clock, ""))
        elif verb == "checkpoint":
            made = self.ws.checkpoint(f"c{self.clock}")
            self.checkpoints.append((made.entry.id, self.clock, self.lines()))
        elif verb == "edit":
            self._edit(*step[1:])
        elif verb == "redo":
            self._redo()
        elif verb == "rollback" and self.checkpoints and not self.windows and self.rollback(*step[1:]):
            self.is_plain &= step[3] == "abort"  # markers bring lines back that a person had removed
            self._before.append({line: list(found) for line, found in self.facts.removed.items()})
            for line in _flat(self.lines()):
                self.facts.removed.pop(line, None)

    def span_of(self, clock: int) -> str:
        """Name of the step that was under way then."""
        return next((name for at, name in reversed(self._span_at) if at <= clock), "")

    def _checkpointed(self, opened: tuple[Any, Any]) -> None:
        made, window = opened
        who = next(name for name, actor in ACTORS.items() if actor == window.actor)
        self.windows[who] = window
        self.checkpoints.append((made.entry.id, self.clock, self.lines()))

    # -- edits

    def _edit(self, who: str, kind: str, a: int, b: int, many: int) -> None:
        if (who == PERSON) == bool(self.windows) or (who != PERSON and who not in self.windows):
            return
        author = SHARED if len(self.windows) > 1 else who
        before = set(_flat(self.lines()))
        files = sorted(self.lines())
        name = NAMES[a % len(NAMES)]
        path = self.root / name
        if kind == "create":
            if not path.exists() and self._is_possible(path):
                self._write(name, [self._line(author) for _ in range(many * 2)])
        elif kind == "remove empty folders":
            for folder, _, _ in os.walk(self.root, topdown=False):
                if folder != str(self.root) and not os.listdir(folder):
                    os.rmdir(folder)
        elif files:
            self._change(kind, files[a % len(files)], b, many, author)
        for line in before - set(_flat(self.lines())):
            self.facts.removed.setdefault(line, []).append((author, self.clock))

    def _change(self, kind: str, name: str, at: int, many: int, author: str) -> None:
        path, lines = self.root / name, self.lines()[name]
        place = at % (len(lines) + 1)
        new = [self._line(author) for _ in range(many)]
        if kind == "replace":
            lines[place : place + many] = new
        elif kind == "insert":
            lines[place:place] = new
        elif kind == "delete line":
            del lines[place : place + many]
        elif kind == "append":
            lines += new
        elif kind == "rewrite":
            lines = [line if n % 4 == 0 else self._line(author) for n, line in enumerate(lines)]
        elif kind == "delete":
            self.is_plain &= bool(lines)  # no line tells that somebody wanted an empty file gone
            path.unlink()
            return
        elif kind == "delete folder":
            if "/" in name:
                self.is_plain &= all(self.lines().values())
                shutil.rmtree(path.parent)
            return
        elif kind == "rename over":
            target = self.root / NAMES[at % len(NAMES)]
            if target.is_file() and target != path:
                path.replace(target)
                self.is_plain = False  # whose lines are there is known, and not where they should be
            return
        else:
            target = self.root / NAMES[at % len(NAMES)]
            if not target.exists() and self._is_possible(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
                to = str(target.relative_to(self.root))
                self.is_plain &= not {name, to} & (self._touched[0] | self._touched[1])
                self._touched[0].update((name, to))
            return
        self._write(name, lines)

    def _is_possible(self, path: Path) -> bool:
        return all(above.is_dir() or not os.path.lexists(above) for above in path.parents)

    def _line(self, author: str) -> str:
        line = f"{author}{len(self.facts.written)}"
        self.facts.written[line] = (author, self.clock)
        return line

    def _write(self, name: str, lines: list[str]) -> None:
        path = self.root / name
        self.is_plain &= name not in self._touched[0]
        self._touched[1].add(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    def lines(self) -> dict[str, list[str]]:
        """The tree as the oracle sees it."""
        found = {}
        for folder, _, files in os.walk(self.root):
            for file in files:
                path = os.path.join(folder, file)
                with open(path) as opened:
                    found[os.path.relpath(path, self.root)] = opened.read().splitlines()
        return found

    # -- taking back

    def rollback(self, who: str, since: int, choice: str) -> bool:
        """Roll back, and judge it; False if it was refused. Then the tree must be as it was."""
        id, then, target = self.checkpoints[since % len(self.checkpoints)]
        before, lines = fingerprint(self.root), self.lines()
        self.counts["moves"] += 1
        actor = ACTORS.get(who, "")
        try:
            plan, report = self.ws.rollback(id, actor=actor, on_conflict=choice)
        except Usage:
            self._same(before, "an actor without changes")
            return False
        except Conflict as refused:
            self.counts["conflicts"] += 1
            self._same(before, "a refused rollback")
            if not refused.data.get("conflicts"):
                raise Wrong(f"refused without naming a conflict: {refused}") from None
            if choice != "abort" and not any("holds something" in r for r in refused.data["reasons"].values()):
                unsettled = set(refused.data["conflicts"])
                if choice in ("keep", "both"):
                    raise Wrong(f"--on-conflict {choice} left conflicts: {sorted(unsettled)}") from None
            return False
        assert report is not None
        self.counts["merges"] += any(action.verb == "merge" for action in plan.actions)
        taken = {who} if who else {"A", "B", SHARED}
        if not who and not any(at >= then for at in self.opened):
            taken.add(PERSON)  # nobody had a window since: nobody knows who it was, and all of it goes
        self.judge(lines, report, target, then, taken, choice)
        self._only_what_was_said(before, report)
        return True

    def judge(
        self,
        before: dict[str, list[str]],
        report: Report,
        target: dict[str, list[str]],
        then: int,
        taken: set[str],
        choice: str,
    ) -> None:
        """What a rollback of `taken` to `target`, made at clock `then`, may have done and what not."""
        after = self.lines()
        if choice != "abort" and not self.is_plain:
            return  # it was refused first, and what nobody could follow was left to the person's choice
        if PERSON in taken:
            if after != target:
                raise Wrong(f"everything was to go back: {after} is not {target}")
            return
        facts, kept = self.facts, {os.fsdecode(item.path) for item in report.kept}
        was, now = _flat(before), _flat(after)
        new = {line for line, (author, at) in facts.written.items() if at > then and author in taken}
        lost = [line for line in was if line not in now and line not in new]
        if lost:
            raise Wrong(f"lines of others are gone: {lost} (were in {[was[line] for line in lost]}), kept {kept}")
        if choice != "abort" or not self.is_plain:
            return
        back = [
            line
            for line, path in now.items()
            if line in facts.written
            and line not in was
            and any(by not in taken and at > then for by, at in facts.removed.get(line, ()))
            and path not in kept
        ]
        if back:
            raise Wrong(f"lines that others removed are back: {back}")
        stays = [line for line in now if line in new and now[line] not in kept]
        if stays:
            raise Wrong(f"lines that were to be taken back are there: {stays}, and their file is not named as kept")
        places = _flat(target)
        missing = [
            line
            for line, path in places.items()
            if line not in now
            and path not in kept
            and not any(path.startswith(f"{folder}/") for folder in kept)
            and not any(by not in taken for by, at in facts.removed.get(line, ()) if at > then)
            and not self._is_dropped(target[path], now, then, taken)
        ]
        if missing:
            raise Wrong(f"lines that were to come back are missing: {missing}")

    def _is_dropped(self, lines: list[str], now: dict[str, str], then: int, taken: set[str]) -> bool:
        """Whether others deleted what was left of a file: then what agents had taken out of it stays away too."""
        removed = self.facts.removed
        return not any(line in now for line in lines) and any(
            by not in taken and at > then for line in lines for by, at in removed.get(line, ())
        )

    def _redo(self) -> None:
        before = fingerprint(self.root)
        try:
            self.ws.redo()
            self.counts["redos"] += 1
            if self._before:
                self.facts.removed = self._before.pop()
        except Usage:
            self._same(before, "a redo of nothing")
        except Conflict:
            self._same(before, "a refused redo")

    def there_and_back(self, ending: Step) -> None:
        """Roll back and redo: everything is as before, and the safety checkpoint has it too."""
        before = fingerprint(self.root)
        if not self.rollback(*ending[1:]):
            return
        if fingerprint(self.root) == before:
            return  # nothing had to be done
        self.ws.redo()
        self.counts["redos"] += 1
        self._same(before, "redo of a rollback")

    def _same(self, wanted: Fingerprint, what: str) -> None:
        differences = diff_fingerprints(wanted, fingerprint(self.root), limit=8)
        if differences:
            raise Wrong(f"{what} changed something:\n    " + "\n    ".join(differences))

    def _only_what_was_said(self, before: Fingerprint, report: Report) -> None:
        after = fingerprint(self.root)
        said = {*report.restored, *report.deleted}
        changed = {path for path in before.keys() | after.keys() if _still(before.get(path)) != _still(after.get(path))}
        if changed - said:
            raise Wrong(f"changed, and not in the report: {sorted(changed - said)}")


def _still(node: Any) -> Any:
    """A folder's time follows from what is in it."""
    return node._replace(mtime_ns=0) if node is not None and node.kind == "d" else node


def _flat(lines: dict[str, list[str]]) -> dict[str, str]:
    """Line → the file that it is in."""
    return {line: path for path, found in lines.items() for line in found}
