"""Names of one file that are to become different files: give each file a group of its own. Pure.

    then    a, c, f are one file (group 7)
    now     c, f are one file (group 7), a was removed before a person wrote on
    wanted  a as it was when it was removed; c and f merged: a keeps 7, c and f are the new group 9

Each path is decided by its own story, and what the stories say is not always what one file can be. A plan with one
number for two contents would be carried out as one file, and the other content would be nowhere.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reprieve.model.entry import Entry
    from reprieve.model.plan import Action

    NamesOf = Callable[[set[int]], Iterable[tuple[bytes, Entry]]]


def split_groups(actions: list[Action], names_of: NamesOf, *, hash_of: Callable[[bytes], bytes]) -> list[Action]:
    """The same actions, with one number for each file. The number stays with names that the plan does not move."""
    groups: dict[int, dict[object, list[int]]] = {}  # number → what a file is to be → the actions that make it so
    for i, action in enumerate(actions):
        if action.after is not None and action.after.link:
            groups.setdefault(action.after.link, {}).setdefault(action.after.same_file_key, []).append(i)
    moved = {action.path for action in actions}
    staying = {entry.link: entry.same_file_key for path, entry in names_of(set(groups)) if path not in moved}
    final = list(actions)
    for link, files in groups.items():
        keeper = staying.get(link, next(iter(files)))
        if len(files) == 1 and keeper in files:
            continue
        for file, members in files.items():
            if file == keeper and (link in staying or len(members) > 1):
                continue
            number = 0  # one name alone is no group
            if len(members) > 1:
                # not drawn by lot: the same plan made once more is compared with the one that was agreed to
                names = b"\0".join(actions[i].path for i in members)
                number = int.from_bytes(hash_of(b"%d\0" % link + names)[:7], "little") | 1
            for i in members:
                after = actions[i].after
                assert after is not None  # it has a number
                final[i] = actions[i].replace(after=after.replace(link=number))
    return final
