"""What of an answer is a promise: the fields of the JSON contract, without words for people and without chance.

Left out: reasons, descriptions, messages, verbs, hints, fields that the contract does not name, and the order of lists
that have none. Ids become names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
Text = Callable[[str], str]

_CHANGE = ("path", "change", "actor", "added", "removed", "binary")
_CHECKPOINT = ("label", "actor", "step", "files", "bytes", "changed")
_EFFECT = ("id", "kind", "class", "resource", "state", "undo_state")


class Reader:
    """Turns an answer into the part of it that is compared.

    `text` puts names in place of ids and folders. `is_plain_folder` tells a folder that was and is there: an answer may
    list it or not if only its time changed.
    """

    def __init__(self, text: Text, is_plain_folder: Callable[[str], bool]) -> None:
        self._text, self._is_plain_folder = text, is_plain_folder

    def read(self, answer: Mapping[str, Any]) -> Json:
        """The promised part of a JSON answer."""
        found: Json = {"ok": answer["ok"]}
        if not answer["ok"]:
            found["error"] = answer["error"]["code"]
        if answer.get("plan"):
            found["plan"] = self._plan(answer["plan"], answer["command"])
        if answer.get("report"):
            found["report"] = self._report(answer["report"], answer["command"])
        if "changes" in answer:
            found["changes"] = sorted(self._pick(change, _CHANGE) for change in answer["changes"])
        if "checkpoint" in answer:
            found["checkpoint"] = self._pick(answer["checkpoint"], _CHECKPOINT)
        if answer.get("effects") and answer["command"] in ("effects", "status", "mail"):
            found["effects"] = [self._pick(effect, _EFFECT) for effect in answer["effects"]]
        if answer.get("gaps"):
            found["gaps"] = self._paths(answer["gaps"])
        if "approvals" in answer:
            found["approvals"] = sorted(one["class"] for one in answer["approvals"])
        return found

    def _plan(self, plan: Json, command: str) -> Json:
        actions = [action for action in plan["actions"] if "effect" not in action]
        effects = [action["effect"] for action in plan["actions"] if "effect" in action]
        # a redo does not say whose changes it brings back
        shown = ("kind", "path") if command == "redo" else ("kind", "path", "actor")
        target = self._text(str(plan["target"]))
        shown_actions = {self._pick(action, shown) for action in map(_git, actions) if not self._is_time(action)}
        found = {
            "target": target if target.startswith("<") else "<point>",
            "actions": sorted(shown_actions),
            "effects": [self._text(id) for id in effects],
            "conflicts": self._whose(plan["conflicts"]),
            "not_undone": self._paths(plan["not_undone"]),
        }
        return found | self._kept(plan, command)

    def _report(self, report: Json, command: str) -> Json:
        restored = [path for path in report["restored"] if not _is_in_git(path) and not self._is_plain_folder(path)]
        found = {
            "restored": sorted(map(self._text, restored)),
            "deleted": sorted(self._text(path) for path in report["deleted"] if not _is_in_git(path)),
            "conflicts": self._whose(report["conflicts"]),
            "effects": [f"{self._text(effect['id'])} {effect['state']}" for effect in report["effects"]],
            "not_undone": self._paths(report["not_undone"]),
            "safety_checkpoint": bool(report["safety_checkpoint"]),
        }
        return found | self._kept(report, command)

    def _kept(self, part: Json, command: str) -> Json:
        # an undo may count what later steps changed instead of listing it
        kept = [one for one in part["kept"] if isinstance(one, str) or not self._is_plain_folder(one["path"])]
        return {} if command == "undo" else {"kept": self._whose(kept)}

    def _is_time(self, action: Json) -> bool:
        return action["kind"] in ("mkdir", "mode") and self._is_plain_folder(action["path"])

    def _whose(self, items: list[Any]) -> list[str]:
        return sorted(self._pick(item, ("path", "actor")) for item in items)

    def _paths(self, items: list[Any]) -> list[str]:
        return sorted(self._text(item["path"] if isinstance(item, dict) else item) for item in items)

    def _pick(self, item: Mapping[str, Any] | str, names: tuple[str, ...]) -> str:
        if isinstance(item, str):
            return self._text(item)
        return "  ".join(self._text(_shown(name, item.get(name))) for name in names)


def _is_in_git(path: str) -> bool:
    return path == ".git" or path.startswith(".git/")


def _git(action: Json) -> Json:
    """Which of git's files are written is its own affair: what git then says of the folder is recorded beside it."""
    return {**action, "kind": "git", "path": ".git", "actor": ""} if _is_in_git(action["path"]) else action


def _shown(name: str, value: object) -> str:
    if name == "added":
        return f"+{value}"
    if name == "removed":
        return f"-{value}"
    if name == "binary":
        return "binary" if value else "text"
    return str(value if value not in ("", None) else "-")
