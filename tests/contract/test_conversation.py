"""`reprieve.Conversation`: messages with turns; undo and redo move files and messages together. Peers' cases by id."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reprieve
from support import Cli
from support.tree import diff_fingerprints, fingerprint


@pytest.fixture
def ws(project: Path) -> Iterator[reprieve.Workspace]:
    with reprieve.open(project) as opened:
        yield opened


@pytest.fixture
def chat(ws: reprieve.Workspace) -> Iterator[reprieve.Conversation]:
    with reprieve.Conversation(ws, "chat") as opened:
        yield opened


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def play(chat: reprieve.Conversation, project: Path, *names: str) -> None:
    """Turns that each make a file, change one that all change, and say so."""
    for name in names:
        with chat.turn(f"make {name}"):
            (project / f"{name}.txt").write_text(name)
            with (project / "log.txt").open("a") as log:
                log.write(name + "\n")
            chat.append(says(f"made {name}"))


def texts(chat: reprieve.Conversation) -> list[str]:
    return [str(message["content"]) for message in chat.messages]


def same(a: Any, b: Any) -> bool:
    return diff_fingerprints(a, b, ignore=["dir_mtime_ns"]) == []


def test_undo_and_redo_stack_and_move_files_and_messages_together(chat: reprieve.Conversation, project: Path) -> None:
    states = [(fingerprint(project), texts(chat))]
    for name in ("a", "b", "c"):
        play(chat, project, name)
        states.append((fingerprint(project), texts(chat)))
    for n in (2, 1, 0):
        done = chat.undo()
        assert (done.turn, done.prompt) == (n + 1, f"make {'abc'[n]}") and len(done.messages) == 2
        assert same(states[n][0], fingerprint(project)) and texts(chat) == states[n][1]
    with pytest.raises(reprieve.Usage, match="no turn"):
        chat.undo()
    assert chat.redo_depth == 3
    for n in (1, 2, 3):
        chat.redo()
        assert same(states[n][0], fingerprint(project)) and texts(chat) == states[n][1]
    with pytest.raises(reprieve.Usage, match="nothing to redo"):
        chat.redo()
    chat.undo()
    chat.undo()
    chat.redo()
    assert texts(chat) == states[2][1] and same(states[2][0], fingerprint(project))


def test_a_new_turn_drops_redo_and_deletes_no_branch(chat: reprieve.Conversation, project: Path) -> None:
    play(chat, project, "a", "b")
    chat.undo()
    chat.append(says("by the way"))  # no turn: what was undone can still be brought back
    assert chat.redo_depth == 1
    play(chat, project, "c")
    with pytest.raises(reprieve.Usage, match="nothing to redo"):
        chat.redo()
    ends = {branch.prompt: branch for branch in chat.branches()}
    assert set(ends) == {"make b", "make c"} and ends["make c"].is_current
    assert [m["content"] for m in chat.messages_of(ends["make b"].id)][-1] == "made b"
    assert texts(chat)[-1] == "made c" and not (project / "b.txt").exists()


@pytest.mark.parametrize("where", ["undo", "redo"])
def test_CT02_what_a_person_changed_since_is_a_conflict_and_nothing_moves(
    chat: reprieve.Conversation, project: Path, where: str
) -> None:
    play(chat, project, "a", "b")
    if where == "redo":
        chat.undo()
    (project / "log.txt").write_text("mine\n")
    (project / "human.txt").write_text("mine too\n")
    before = fingerprint(project), texts(chat)
    with pytest.raises(reprieve.Conflict) as caught:
        getattr(chat, where)()
    assert caught.value.data["conflicts"] == ["log.txt"]
    assert diff_fingerprints(before[0], fingerprint(project)) == [] and texts(chat) == before[1]
    if where == "redo":
        (project / "log.txt").write_text("a\n")  # as the undo had left it: the way is free again
        chat.redo()
        assert (project / "b.txt").exists() and (project / "human.txt").read_text() == "mine too\n"


def test_a_persons_other_work_stays(chat: reprieve.Conversation, project: Path) -> None:
    play(chat, project, "a")
    (project / "human.txt").write_text("mine\n")
    chat.undo()
    assert (project / "human.txt").exists() and not (project / "a.txt").exists()


def test_CT14_another_conversation_keeps_its_work(ws: reprieve.Workspace, project: Path) -> None:
    with reprieve.Conversation(ws, "one") as one, reprieve.Conversation(ws, "two") as two:
        play(one, project, "a")
        with two.turn("make z"):
            (project / "z.txt").write_text("z")
        one.undo()
        assert (project / "z.txt").exists() and not (project / "a.txt").exists()
        assert len(two.messages) == 1 and one.messages == []


def test_CT16_what_was_undone_is_done_again_and_not_replayed(
    ws: reprieve.Workspace, chat: reprieve.Conversation, project: Path
) -> None:
    """The same call with the same id and arguments runs again: no answer outlives the world it was given in."""
    ran = []

    @ws.guard(call="toolu_1", session="chat")
    def write(path: str) -> str:
        ran.append(path)
        (project / path).write_text("ok")
        return "write ok"

    for _ in range(2):
        with chat.turn("write it"):
            assert write("f") == "write ok"
        assert (project / "f").exists()
        chat.undo()
        assert not (project / "f").exists()
    assert ran == ["f", "f"]


CALL = """
import os, signal, sys, reprieve
from reprieve.app.effects import journal_of
from reprieve.app import journals
from reprieve.model.effect import EffectDraft
with reprieve.open(sys.argv[1]) as ws, reprieve.Conversation(ws, "chat") as chat:
    with chat.turn("pay"), ws.guard(name="pay", call="pay-1"), journal_of(ws._inner) as journal:
        journal.begin(EffectDraft("http", description="pay", call="pay-1"), journals.place(ws._inner))
        with open(os.path.join(sys.argv[1], "paid"), "a") as world:
            world.write("paid\\n")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_call_that_outlives_its_turn_does_not_set_the_count_back(
    ws: reprieve.Workspace, chat: reprieve.Conversation, project: Path
) -> None:
    long = ws.guard(name="long", session="chat")
    with chat.turn("begin"):
        long.__enter__()
    with chat.turn("go on"):
        pass
    long.__exit__(None, None, None)
    with chat.turn("and on"):
        pass
    assert chat.turn_number == 3


def test_CT17_an_effect_that_a_crash_left_unknown_is_not_done_twice(project: Path) -> None:
    """The intent is there before the effect; who goes on is told, and the effect is named as unknown."""
    script = project.parent / "pay.py"
    script.write_text(CALL)
    first = subprocess.run([sys.executable, str(script), str(project)], check=False)
    again = subprocess.run([sys.executable, str(script), str(project)], capture_output=True, text=True, check=False)
    assert first.returncode == -signal.SIGKILL and again.returncode == 1
    assert "call 'pay-1' was made before" in again.stderr
    assert (project / "paid").read_text() == "paid\n"
    with reprieve.open(project) as ws:
        assert [effect.state for effect in ws.effects()] == ["unknown"]


def test_CT18_a_run_that_resumes_nothing_is_kept_all_the_same(ws: reprieve.Workspace, project: Path, cli: Cli) -> None:
    """Begun anew, each turn and each step lands in the store like the first time."""
    for round in (1, 2):
        with ws.plan("p") as plan, plan.step("a"):
            (project / "a").write_text(str(round))
    ends = [e for e in cli("log", "--all", "--json").json["entries"] if e["step"] == "p/a"]
    assert len(ends) == 2
    for name in ("x", "y"):
        with reprieve.Conversation(ws, name) as chat:
            play(chat, project, name)
            assert len(chat.messages) == 2


def test_CT19_undo_does_not_depend_on_the_context_window(chat: reprieve.Conversation, project: Path) -> None:
    """Compaction throws messages away for the model; every turn can still be undone."""
    play(chat, project, "a", "b", "c")
    chat.replace({"role": "system", "content": "summary: a, b and c were made"})
    play(chat, project, "d")
    assert texts(chat) == ["summary: a, b and c were made", "make d", "made d"]
    for name in "dcba":
        assert chat.undo().prompt == f"make {name}"
        assert not (project / f"{name}.txt").exists()
    assert chat.messages == [] and not (project / "log.txt").exists()


SESSION = """
import os, sys, reprieve
root, *words = sys.argv[1:]
with reprieve.open(root) as ws, reprieve.Conversation(ws, "chat") as chat:
    for word in words:
        if word in ("undo", "redo"):
            getattr(chat, word)()
        else:
            with chat.turn(word):
                open(os.path.join(root, word), "w").write(word)
                chat.append({"role": "assistant", "content": "made " + word})
    print([m["content"] for m in chat.messages], chat.redo_depth)
"""


def test_CT05_P26_it_survives_restarts(project: Path) -> None:
    """Each command is a process of its own: undo, redo and going on work as if it were one."""
    script = project.parent / "session.py"
    script.write_text(SESSION)

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, str(script), str(project), *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    run("a", "b", "c")
    assert run("undo", "undo") == "['a', 'made a'] 2" and not (project / "b").exists()
    assert run("redo") == "['a', 'made a', 'b', 'made b'] 1" and (project / "b").exists()
    assert run("d") == "['a', 'made a', 'b', 'made b', 'd', 'made d'] 0" and (project / "d").exists()
    assert run("undo", "undo", "undo") == "[] 3" and not list(project.glob("[a-d]"))


def test_CT20_a_crash_between_files_and_messages_is_finished(chat: reprieve.Conversation, project: Path) -> None:
    """The files moved and the process died: who opens it next sees messages that agree."""
    play(chat, project, "a", "b")
    pid = os.fork()
    if not pid:  # the child may not use what was opened before the fork
        os.execve(
            sys.executable,
            [sys.executable, "-c", _DIES, str(project)],
            dict(os.environ),
        )
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not (project / "b.txt").exists() and len(chat.messages) == 4
    with reprieve.open(project) as ws, reprieve.Conversation(ws, "chat") as again:
        assert texts(again) == ["make a", "made a"] and again.redo_depth == 1
        again.redo()
        assert (project / "b.txt").exists() and len(again.messages) == 4


_DIES = """
import os, signal, sys, reprieve
from reprieve.app.turns import Conversation
say = Conversation._say
def dying(self, head, body):
    if not body.get("is_intent"):
        os.kill(os.getpid(), signal.SIGKILL)
    say(self, head, body)
Conversation._say = dying
with reprieve.open(sys.argv[1]) as ws, Conversation(ws, "chat") as chat:
    chat.undo()
"""


def test_a_turn_that_was_interrupted_is_repaired_and_can_be_undone(chat: reprieve.Conversation, project: Path) -> None:
    with pytest.raises(KeyboardInterrupt), chat.turn("go"):
        chat.append({"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function"}]})
        (project / "half").write_text("half")
        raise KeyboardInterrupt
    assert chat.messages[-1]["tool_call_id"] == "c1" and "interrupted" in chat.messages[-1]["content"]
    assert len(chat.undo().messages) == 2 and not (project / "half").exists() and chat.messages == []


def test_CT22_a_turn_under_way_is_not_undone(ws: reprieve.Workspace, chat: reprieve.Conversation) -> None:
    with chat.turn("go"):
        with pytest.raises(reprieve.Usage, match="under way"):
            chat.undo()
        with reprieve.Conversation(ws, "chat") as other, pytest.raises(reprieve.Refused, match="under way"):
            other.undo()
        with pytest.raises(reprieve.Usage, match="under way"), chat.turn("again"):
            pass


def test_a_second_writer_gets_a_conflict_and_nothing_is_lost(
    ws: reprieve.Workspace, chat: reprieve.Conversation, project: Path
) -> None:
    with reprieve.Conversation(ws, "chat") as other:
        play(chat, project, "a")
        for act in (lambda: other.append(says("x")), lambda: other.turn("x").__enter__(), other.undo):
            with pytest.raises(reprieve.Conflict, match="somebody else"):
                act()
        assert texts(chat) == ["make a", "made a"]


def test_effects_of_a_turn_are_named_or_undone(
    ws: reprieve.Workspace, chat: reprieve.Conversation, project: Path
) -> None:
    memory: dict[str, int] = {}
    with chat.turn("go"), ws.guard(name="tool"):
        memory["x"] = 1
        ws.remember("x", None, 1, set=lambda _: memory.pop("x"))
    assert chat.undo().report.is_partial and memory == {"x": 1}
    chat.redo()
    assert not chat.undo(effects=True).report.is_partial and memory == {}


def test_an_async_harness_works_the_same(chat: reprieve.Conversation, project: Path) -> None:
    async def main() -> None:
        async with chat.turn({"role": "user", "content": [{"type": "text", "text": "make a"}]}):
            (project / "a").write_text("a")
            chat.append(says("made a"))

    asyncio.run(main())
    assert chat.undo().prompt == "make a" and not (project / "a").exists()


def test_messages_are_kept_whole_and_must_be_json(chat: reprieve.Conversation) -> None:
    """CT-25: nothing is cut, however long."""
    long = "x" * 200_000
    chat.append(says(long), {"role": "assistant", "content": [{"type": "text", "text": "é\udc80", "n": [1, None]}]})
    assert texts(chat)[0] == long and chat.messages[1]["content"][0]["text"] == "é\udc80"
    for wrong in (says({1, 2}), "text", {"n": float("nan")}):  # type: ignore[arg-type]
        with pytest.raises(reprieve.Usage):
            chat.append(wrong)  # type: ignore[arg-type]


def test_turns_are_on_the_timeline(chat: reprieve.Conversation, project: Path, cli: Cli) -> None:
    """`undo turn:N` and `rollback turn:N` know them, and the next undo of the conversation agrees with them."""
    play(chat, project, "a", "b")
    cli("undo", "turn:2")
    assert not (project / "b.txt").exists()
    chat.undo()
    assert texts(chat) == ["make a", "made a"] and (project / "a.txt").exists()


@pytest.mark.parametrize("what", ["files", "messages"])
def test_what_was_pruned_is_not_said_to_be_undone(
    chat: reprieve.Conversation, project: Path, cli: Cli, what: str
) -> None:
    play(chat, project, "a", "b")
    if what == "files":
        cli("prune", "--yes", "--keep-last", "1", "--keep-days", "0")
    else:
        cli("thread", "prune", "conversation:chat", "--yes")
    with pytest.raises(reprieve.BadRef, match="pruned"):
        for _ in range(2):
            chat.undo()
    assert (project / "a.txt").exists() and chat.messages[0]["content"] == "make a"


def test_redo_does_not_claim_files_that_a_person_took_away_again(
    ws: reprieve.Workspace, chat: reprieve.Conversation, project: Path
) -> None:
    play(chat, project, "a")
    chat.undo()
    ws.redo()  # by hand,
    ws.undo("turn:1")  # and back again
    with pytest.raises(reprieve.Conflict, match="by hand"):
        chat.redo()
    assert chat.messages == [] and not (project / "a.txt").exists() and chat.redo_depth == 1
    ws.redo()
    chat.redo()
    assert texts(chat) == ["make a", "made a"] and (project / "a.txt").exists()


def test_an_undo_that_is_interrupted_after_the_files_moved_takes_the_messages_along(
    ws: reprieve.Workspace, chat: reprieve.Conversation, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process goes on: what it appends next must not stand behind messages about files that are gone."""
    play(chat, project, "a", "b")
    undo = ws._inner.undo

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        undo(*args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ws._inner, "undo", interrupted)
        chat.undo()
    assert not (project / "b.txt").exists() and texts(chat) == ["make a", "made a"]
    chat.append(says("more"))
    with reprieve.Conversation(ws, "chat") as again:
        assert texts(again) == ["make a", "made a", "more"] and again.redo_depth == 1
