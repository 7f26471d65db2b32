"""`reprieve thread`: agents' states."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reprieve.app import thread_views as views
from reprieve.app.threads import FILE, Files, Rolled, open_threads, path_of, roll_back
from reprieve.cli import humane, opening
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.take_back import Words, carry_out, preview
from reprieve.cli.terminal import Terminal
from reprieve.errors import Misconfigured, Refused, Usage
from reprieve.model.plan import Plan, Report
from reprieve.store.thread_memory import MemoryThreads
from reprieve.threads import handoff, moves, retention
from reprieve.threads.items import returns
from reprieve.threads.moves import Moved
from reprieve.threads.search import search
from reprieve.threads.threads import Threads
from reprieve.threads.values import Types

ACTIONS = ("list", "show", "diff", "rollback", "fork", "handoff", "adopt", "verify", "search", "prune", "delete")
SPEC = Command(
    "thread",
    "Look at agents' states, roll them back, fork, hand over and prove them",
    (
        ("reprieve thread show order-7", "the states of a thread, newest first"),
        ("reprieve thread rollback order-7 ~3 --files", "go back, together with the files of that moment"),
    ),
    details=(
        "`list`; `show THREAD [STATE]`; `diff THREAD STATE [STATE]`; `rollback THREAD STATE`; `fork THREAD STATE NEW`; "
        "`handoff THREAD [STATE]` prints what `adopt FILE NEW` takes (FILE `-`: standard input); `verify [THREAD]`; "
        "`search TEXT`; `prune THREAD`; `delete THREAD`. STATE is an id or a unique beginning or end of one, `head`, "
        "or `~N`, N states before the newest. With --files the files move as by `rollback`; effects stand and are "
        "named. Nothing but `prune` and `delete` erases anything. The threads are those "
        "of the workspace; --state names a folder with threads of its own."
    ),
    arguments=(
        Argument("ACTION", "What to do", choices=ACTIONS, is_required=True),
        Argument("WORDS", "The thread, state, text or file that it is about", is_many=True),
    ),
    options=(
        Option("--state", "Use the threads in the folder DIR", metavar="DIR", complete="path"),
        Option("--number", "Show at most N; 0 means all", metavar="N", short="-n", default="20 for search, else all"),
        Option("--thread", "Search only this thread", metavar="THREAD"),
        Option("--files", "Roll the files back to the checkpoint of that moment, too"),
        Option("--to", "Hand over to this agent", metavar="AGENT"),
        Option("--from", "Adopt from the threads in the folder DIR", metavar="DIR", complete="path"),
        Option("--expect", "An earlier hash: the thread must still contain it", metavar="HASH"),
        Option("--keep", "Keep this many of the newest states, and the head", metavar="N", default="1"),
        Option("--key", "The key of encrypted threads: env:VAR, file:PATH or keyring:NAME", metavar="REF"),
        Option("--dry-run", "With rollback, fork, prune and delete: show what would happen and stop"),
        Option("--yes", "Do not ask", short="-y"),
    ),
    exit_codes=(
        (4, "with --files: conflict, nothing was touched"),
        (5, "not confirmed, or a hand-off is not what was handed over"),
        (6, "with --files: partly done, as where an effect stands"),
        (13, "a thread is damaged"),
    ),
)
_FILES = Words("Roll back {count}?", "Rolled files back to {target}", "Files are as they were at {target}")


# what would be taken for a promise by an action that does not keep it
_ONLY_FOR = {"dry-run": ("rollback", "fork", "prune", "delete"), "files": ("rollback",), "keep": ("prune",)}


def run(args: Parsed, out: Terminal) -> int:
    action = args.text("ACTION")
    for option, actions in _ONLY_FOR.items():
        if action not in actions and (args.flag(option) or args.many(option)):
            raise Usage(f"'thread {action}' takes no --{option}", hints=["see: reprieve thread --help"])
    words = list(args.many("WORDS"))
    needed = {"list": (0, 0), "show": (1, 2), "diff": (2, 3), "rollback": (2, 2), "fork": (3, 3), "handoff": (1, 2),
              "adopt": (2, 2), "verify": (0, 1), "search": (1, 1), "prune": (1, 1), "delete": (1, 1)}  # fmt: skip
    least, most = needed[action]
    if not least <= len(words) <= most:
        raise Usage(f"'thread {action}' takes {_count(least, most)}", hints=["see: reprieve thread --help"])
    acts: dict[str, Callable[[Parsed, Terminal, Threads, Files | None, list[str]], int | None]] = {
        "list": _list, "show": _show, "diff": _diff, "rollback": _rollback, "fork": _fork, "handoff": _handoff,
        "adopt": _adopt, "verify": _verify, "search": _search, "prune": _prune, "delete": _delete,
    }  # fmt: skip
    with _opened(args, out) as (threads, files):
        return acts[action](args, out, threads, files, words) or 0


@contextmanager
def _opened(args: Parsed, out: Terminal) -> Iterator[tuple[Threads, Files | None]]:
    folder = args.maybe("state")
    if folder is not None:
        threads = _in_folder(args, folder)
        try:
            yield threads, None
        finally:
            threads.store.close()
        return
    with opening.workspace(args, out) as ws:
        if not os.path.lexists(path_of(ws)) and args.text("ACTION") != "adopt":
            yield Threads(MemoryThreads(), Types()), None  # none yet, and looking makes none
            return
        threads, files = open_threads(ws, Types(), key=args.maybe("key"))
        try:
            yield threads, files
        finally:
            threads.store.close()


def _in_folder(args: Parsed, folder: str) -> Threads:
    path = os.path.join(args.start, folder)
    if not os.path.lexists(os.path.join(path, FILE)):
        raise Misconfigured(
            f"there are no threads in '{folder}'", hints=["name the folder that ReprieveSaver was given"]
        )
    return open_threads(path, Types(), create=False, key=args.maybe("key"))[0]


def _list(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    found = [views.thread_json(threads, record) for record in threads.store.threads() if not record.is_deleted]
    out.answer(threads=found)
    for one in found:
        out.line(f"{humane.safe(one['id'])}  {humane.count(one['states'], 'state')}  head {one['head'] or 'none'}")
    if not found:
        out.line("No threads yet")


def _show(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    thread = words[0]
    if len(words) == 2:
        id = views.find_state(threads, thread, words[1])
        state = threads.get(thread, id)
        assert state is not None
        values = views.values_json(threads, thread, id)
        writes = [{"task": w.task, "channel": w.channel, "value": threads.parts.plain(w.value)} for w in state.writes]
        out.answer(state={**views.state_json(state), "values": values, "writes": writes})
        out.line(f"State:    {id}")
        out.line(f"Made:     {humane.moment(state.entry.created_at)}, {humane.age(state.entry.created_at)}")
        for name, value in values.items():
            out.line(f"{humane.safe(name)} = {_told(value, 2000)}")
        for write in writes:
            out.line(f"waiting: {humane.safe(str(write['channel']))} = {_told(write['value'], 500)}")
        return
    record = views.find_thread(threads, thread)
    shown = list(views.states_json(threads, thread, limit=args.number("number") or 0))
    out.answer(thread=views.thread_json(threads, record), states=shown)
    with out.paged():
        for one in shown:
            words_ = [one["id"], "" if one["step"] is None else f"step {one['step']}", str(one["source"] or "")]
            words_ += [f"in {humane.safe(one['namespace'])}"] if one["namespace"] else []
            words_ += [
                f"{name.replace('_', ' ')} {humane.safe(str(one[name]))}" for name in views.ORIGINS if name in one
            ]
            words_ += [humane.count(one["pending_writes"], "write") + " waiting"] if one["pending_writes"] else []
            words_ += [f"files {one['files']}"] if one["files"] else []
            out.line(("* " if one["is_head"] else "  ") + "  ".join(filter(None, words_)))


def _diff(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    thread = words[0]
    found = views.diff_json(threads, thread, words[1], words[2] if words[2:] else "head")
    out.answer(**found)
    for one in found["differences"]:
        place = humane.safe(".".join(map(str, one["path"])))
        if one["change"] != "added":
            out.line(f"- {place}: {_told(one['before'], 200)}")
        if one["change"] != "removed":
            out.line(f"+ {place}: {_told(one['after'], 200)}")
    if not found["differences"]:
        out.line("No difference")


def _rollback(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> int:
    thread, id = words[0], views.find_state(threads, words[0], words[1])
    items = [one for one in returns(threads, thread, id) if one.is_due]
    with_files, code = args.flag("files"), 0
    if args.flag("dry-run"):
        _preview(out, roll_back(threads, files, thread, id, with_files=with_files, dry_run=True))
        return 0
    if with_files:
        moved, code = _with_files(args, out, threads, files, thread, id)
    else:
        moved = roll_back(threads, files, thread, id, with_files=False).moved
    out.answer(
        thread=thread, head=moved.id, restored_from=moved.target, rolled_back_from=moved.before,
        pending_writes=moved.writes, files=moved.files or None, files_rolled_back=with_files,
        store_items=[{"namespace": list(one.place[0]), "key": one.place[1]} for one in items],
    )  # fmt: skip
    out.line(f"Rolled back '{humane.safe(thread)}' to {moved.target}; its head is {moved.id}")
    if moved.files and not with_files:
        out.say(f"Files stay as they are. Those of that moment: reprieve rollback {moved.files}")
    if items:
        out.say(
            f"{humane.count(len(items), 'item')} of the long-term store stay as they are;"
            " the program that has it takes them back: ReprieveStore.rollback"
        )
    if moved.back:
        given = [word for name in ("state", "key") for value in args.many(name) for word in (f"--{name}", value)]
        command = views.rollback_command(thread, moved.back, *given)
        out.say(f"Take {'the thread' if with_files else 'this'} back with: {humane.safe(command)}")
    return code


def _with_files(
    args: Parsed, out: Terminal, threads: Threads, files: Files | None, thread: str, id: str
) -> tuple[Moved, int]:
    """The files and the thread: shown, confirmed, reported and answered as by `rollback`."""
    moved: list[Moved] = []

    def move(*, dry_run: bool, expect: str) -> tuple[Plan, Report | None]:
        head = moved[-1].before if moved else ""
        rolled = roll_back(
            threads, files, thread, id, with_files=True, expect=head, expect_plan=expect, dry_run=dry_run
        )
        moved.append(rolled.moved)
        assert rolled.plan is not None
        return rolled.plan, rolled.report

    if files is None:
        move(dry_run=True, expect="")  # raises: no files belong to these threads
    assert files is not None
    code = carry_out(move, files.ws, out, _FILES, dry_run=False, ask=not args.flag("yes"))
    return moved[-1], code


def _preview(out: Terminal, rolled: Rolled) -> None:
    moved, plan = rolled.moved, rolled.plan
    out.answer(
        thread=moved.thread, dry_run=True, target=moved.target, head=moved.before,
        pending_writes=moved.writes, files=moved.files or None,
    )  # fmt: skip
    out.line(f"Would roll back '{humane.safe(moved.thread)}' to {moved.target}; its head is {moved.before}")
    if plan is None:
        out.say("Nothing was touched: this was a dry run")
    else:
        preview(plan, out, _FILES)


def _fork(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    thread, id, new = words[0], views.find_state(threads, words[0], words[1]), words[2]
    is_dry = args.flag("dry-run")
    moved = moves.fork(threads, thread, id, new, dry_run=is_dry)
    out.answer(thread=new, dry_run=is_dry, head=moved.id or None, forked_from=f"{thread}:{id}")
    begins = "would begin" if is_dry else "begins"
    out.line(f"'{humane.safe(new)}' {begins} with {id} of '{humane.safe(thread)}'")


def _handoff(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    id = views.find_state(threads, words[0], words[1] if words[1:] else "")
    described = handoff.handoff(threads, words[0], id, to_agent=args.text("to"))
    out.answer(handoff=described)
    out.line(json.dumps(described))


def _adopt(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    path, new = words
    try:
        text = sys.stdin.read() if path == "-" else _read(os.path.join(args.start, path))
        described = json.loads(text)
    except (OSError, ValueError) as exc:
        raise Usage(f"'{path}' is no hand-off: {exc}") from exc
    if isinstance(described, dict):
        described = described.get("handoff", described)  # the answer of --json, or the descriptor itself
    if not isinstance(described, dict):
        raise Usage(f"'{path}' is no hand-off")
    source = _in_folder(args, args.text("from")) if args.maybe("from") is not None else None
    moved = handoff.adopt(threads, described, new, source=source)
    origin = f"{described['thread_id']}:{described['checkpoint_id']}"
    out.answer(thread=new, head=moved.id, adopted_from=origin, verified=True)
    out.line(f"'{humane.safe(new)}' begins with {humane.safe(origin)}, which is what was handed over")


def _verify(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    found = views.proof_json(threads, words, expect=args.text("expect"))
    out.answer(**found)
    for one in found["threads"]:
        out.line(
            f"{humane.safe(one['id'])}: {humane.count(one['states'], 'state')} as stored, hash {one['hash']}"
            + ("" if one["content_checked"] else "; the chain alone: what they hold is encrypted (--key)")
        )
    if not found["threads"]:
        out.line("No threads yet")


def _search(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    number = args.number("number")
    hits = list(search(threads, words[0], thread=args.text("thread"), limit=20 if number is None else number))
    out.answer(hits=[views.hit_json(hit) for hit in hits])
    for hit in hits:
        out.line(f"{humane.safe(hit.thread)}  {hit.id}  {humane.safe(hit.channel)}: {humane.safe(hit.text)}")
    if not hits:
        out.line("Nothing found")


def _prune(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    thread, keep = words[0], args.number("keep")
    views.find_thread(threads, thread)
    keep = 1 if keep is None else max(keep, 1)
    is_dry = args.flag("dry-run")
    planned = retention.prune(threads, thread, keep=keep, dry_run=True)
    if not is_dry:
        _confirm(args, out, f"Give up {humane.count(planned.states, 'state')} of '{thread}' for good?")
        planned = retention.prune(threads, thread, keep=keep)
        threads.store.compact()
    out.answer(thread=thread, dry_run=is_dry, states=planned.states, entries=planned.entries, parts=planned.parts)
    out.line(
        f"{'Would give up' if is_dry else 'Gave up'} {humane.count(planned.states, 'state')} of '{humane.safe(thread)}'"
    )


def _delete(args: Parsed, out: Terminal, threads: Threads, files: Files | None, words: list[str]) -> None:
    thread = words[0]
    record = views.thread_json(threads, views.find_thread(threads, thread))
    is_dry = args.flag("dry-run")
    if not is_dry:
        _confirm(args, out, f"Delete '{thread}' with {humane.count(record['states'], 'state')} for good?")
        retention.delete(threads, thread)
    out.answer(thread=thread, dry_run=is_dry, states=record["states"])
    done = "Would delete" if is_dry else "Deleted"
    out.line(f"{done} '{humane.safe(thread)}' with {humane.count(record['states'], 'state')}")


def _confirm(args: Parsed, out: Terminal, question: str) -> None:
    """What erases is asked for; where nobody can be asked, --yes has to say it."""
    if not args.flag("yes") and not out.confirm(question):
        raise Refused("not confirmed; nothing was given up", hints=["say it with --yes"])


def _told(value: Any, most: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return humane.safe(text if len(text) <= most else text[:most] + "…")


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _count(least: int, most: int) -> str:
    if least == most:
        return humane.count(most, "word") if most else "nothing more"
    return f"{least} to {most} words"
