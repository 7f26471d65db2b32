"""`Workspace.guard`: checkpoint before, seal after, and nothing runs that could not be protected."""

from __future__ import annotations

import asyncio
import functools
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import reprieve
from reprieve.model.talk import talk_of
from reprieve.model.window import closes, opens, standing


@pytest.fixture
def ws(project: Path) -> Iterator[reprieve.Workspace]:
    with reprieve.open(project) as opened:
        yield opened


@contextmanager
def no_room() -> Iterator[None]:
    """The kernel writes to no file any more: to the store it is a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def spoil(home: Path) -> bytes:
    """Damage the database for real; the answer is what it was."""
    before = (home / "store.db").read_bytes()
    (home / "store.db").write_bytes(b"not a database at all" * 400)
    return before


def still_open(ws: reprieve.Workspace) -> list[str]:
    newest = next(entry for entry in ws.log() if entry.kind == "checkpoint")
    return [window.step for window in standing(newest.data).open]


# -- its forms


def test_a_bare_decorator_makes_a_step_that_can_be_undone(ws: reprieve.Workspace, project: Path) -> None:
    @ws.guard
    def write(path: str, text: str) -> int:
        """Docs stay."""
        return (project / path).write_text(text)

    assert write("new.txt", text="five\n") == 5
    assert (write.__name__, write.__doc__) == ("write", "Docs stay.")
    newest, before = list(ws.log(2))
    assert (newest.label, before.label) == ("write: new.txt", "before write: new.txt")
    assert newest.actor == "python:no-session" and closes(newest.data) == opens(before.data)
    ws._inner.undo(newest.id)
    assert not (project / "new.txt").exists()


def test_a_decorator_with_arguments_names_the_step(ws: reprieve.Workspace, project: Path) -> None:
    @ws.guard(kind="tool", name="shell", session="s1", agent="home-made")
    def run(command: str) -> str:
        (project / "README.md").write_text(command)
        return command

    assert run("make all") == "make all"
    newest = next(iter(ws.log()))
    assert (newest.label, newest.actor) == ("shell: make all", "home-made:s1")
    talk = talk_of(newest.data)
    assert talk is not None and (talk.who, talk.turn, talk.at) == ("home-made:s1", 1, "end")


def test_a_block_has_its_checkpoints_and_its_id(ws: reprieve.Workspace, project: Path) -> None:
    with ws.guard(name="edit", arguments={"path": "README.md"}, call="toolu_1", session="s1", agent="sdk") as step:
        assert step.after is None and still_open(ws) == ["call:toolu_1"]
        (project / "README.md").write_text("changed\n")
    assert step.after is not None and step.after.entry.changed == 1 and step.name == "call:toolu_1"
    assert still_open(ws) == []
    assert ws.rollback("call:toolu_1").restored == (b"README.md",)
    assert ws.log and ws._inner.resolve(step.id) == step.before.entry


def test_the_id_of_a_block_means_that_call_alone(ws: reprieve.Workspace, project: Path) -> None:
    """Not a later call of the same name, and not what a person did before it."""
    steps = []
    for number in range(2):
        (project / f"mine{number}").write_text("a person's")
        with ws.guard(name="edit", call="toolu_1") as step:
            (project / f"made{number}").write_text("made")
        steps.append(step)
    assert ws._inner.resolve(steps[0].id) == steps[0].before.entry
    assert ws.undo(steps[0].id).deleted == (b"made0",)
    assert ws.undo(steps[1].before).deleted == (b"mine1",)
    assert (project / "mine0").exists() and (project / "made1").exists()


def test_an_async_callable_and_an_async_block(ws: reprieve.Workspace, project: Path) -> None:
    @ws.guard
    async def write(path: str) -> str:
        await asyncio.sleep(0)
        (project / path).write_text("async\n")
        return path

    async def main() -> None:
        assert await write("a.txt") == "a.txt"
        async with ws.guard(name="b") as step:
            (project / "b.txt").write_text("async\n")
        assert step.after is not None and step.after.entry.changed == 1

    asyncio.run(main())
    assert [entry.label for entry in ws.log(4)] == ["b", "before b", "write: a.txt", "before write: a.txt"]


@pytest.mark.parametrize("form", ["partial", "method", "object"])
def test_other_callables_are_guarded_too(ws: reprieve.Workspace, project: Path, form: str) -> None:
    class Tool:
        async def __call__(self, text: str) -> str:
            return self.write(text)

        def write(self, text: str) -> str:
            (project / "t").write_text(text)
            return text

    def act(text: str, *, more: str) -> str:
        return Tool().write(text + more)

    if form == "object":
        guarded: Any = ws.guard(Tool())
        assert asyncio.run(guarded("x!")) == "x!"
    else:
        call: Any = functools.partial(act, more="!") if form == "partial" else Tool().write
        assert ws.guard(call)("x!"[: 1 if form == "partial" else 2]) == "x!"
    assert next(iter(ws.log())).changed == 1 and still_open(ws) == []


def test_what_works_while_others_read_from_it_is_refused(ws: reprieve.Workspace) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(reprieve.Usage, match="generator"):
        ws.guard(numbers)

    async def later() -> None: ...

    with pytest.raises(reprieve.Usage, match="not done"):
        ws.guard(lambda: later())()


@pytest.mark.parametrize("form", ["generator", "async generator", "awaitable"])
def test_what_is_given_back_to_be_worked_off_later_is_refused(ws: reprieve.Workspace, project: Path, form: str) -> None:
    """Its work would come after the step: nobody could take it back with the step, and it would count as a person's."""

    def write(name: str) -> str:
        (project / name).write_text("late")
        return name

    class Later:
        def __await__(self) -> Iterator[Any]:
            write("late.txt")
            yield

    async def one_by_one() -> Any:
        yield write("late.txt")

    made: dict[str, Any] = {
        "generator": lambda: (write(name) for name in ["late.txt"]),
        "async generator": one_by_one,
        "awaitable": Later,
    }

    def later() -> Any:
        return made[form]()

    async def later_still() -> Any:
        return made[form]()

    with pytest.raises(reprieve.Usage, match=r"'later' gave back .* not done"):
        ws.guard(later)()
    with pytest.raises(reprieve.Usage, match=r"'later_still' gave back .* not done"):
        asyncio.run(ws.guard(later_still)())  # type: ignore[arg-type]
    assert not (project / "late.txt").exists() and still_open(ws) == []


def test_a_task_that_is_given_back_does_not_go_on_outside_of_the_step(ws: reprieve.Workspace, project: Path) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        (project / "late.txt").write_text("late")

    @ws.guard
    def begin() -> asyncio.Task[None]:
        return asyncio.ensure_future(work())

    async def main() -> None:
        with pytest.raises(reprieve.Usage, match="gave back a future: its work was cancelled"):
            begin()
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert not (project / "late.txt").exists()


def test_a_future_is_given_back_once_it_is_done(ws: reprieve.Workspace, project: Path) -> None:
    """Work in threads is part of the step if the function waits for it; if it does not, that is said."""
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as pool:

        @ws.guard
        def whole() -> Any:
            future = pool.submit((project / "in.txt").write_text, "in time")
            future.result()
            return future

        @ws.guard
        def begun() -> Any:
            return pool.submit(go_on.wait, 30)

        try:
            assert whole().result() == 7 and next(iter(ws.log())).changed == 1
            with pytest.raises(reprieve.Usage, match=r"under way, outside|was cancelled"):
                begun()
        finally:
            go_on.set()


def test_arguments_are_kept_without_secrets(ws: reprieve.Workspace) -> None:
    class Client:
        def __str__(self) -> str:
            raise AssertionError("nobody asked")

    with ws.guard(name="http", arguments={"url": "https://a.example", "token": "hunter2", "client": Client()}) as step:
        pass
    assert "hunter2" not in step.before.entry.note and "<Client>" in step.before.entry.note


def test_a_guard_is_for_one_block_at_a_time(ws: reprieve.Workspace) -> None:
    guard = ws.guard(name="once")
    with guard, pytest.raises(reprieve.Usage):
        guard.__enter__()
    with guard as again:
        pass
    assert again.after is not None


# -- how it ends


def test_an_exception_seals_and_goes_on(ws: reprieve.Workspace, project: Path) -> None:
    @ws.guard
    def fail() -> None:
        (project / "half").write_text("half\n")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        fail()
    assert not hasattr(caught.value, "__notes__")
    assert next(iter(ws.log())).label == "fail (failed)" and still_open(ws) == []


def test_a_cancelled_call_is_sealed(ws: reprieve.Workspace, project: Path) -> None:
    @ws.guard
    async def slow() -> None:
        (project / "half").write_text("half\n")
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(slow())
        while not (project / "half").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    newest = next(iter(ws.log()))
    assert (newest.label, newest.changed) == ("slow (failed)", 1) and still_open(ws) == []


def test_a_call_that_is_cancelled_while_it_begins_does_not_run_and_leaves_nothing_open(
    ws: reprieve.Workspace, project: Path
) -> None:
    ws.checkpoint("start")

    @ws.guard
    async def write() -> None:
        (project / "ran").write_text("x")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            with ws._inner.store.lock(ws.id):
                held.set()
                free.wait(10)

        holding = loop.run_in_executor(None, hold)
        while not held.is_set():
            await asyncio.sleep(0.001)
        task = asyncio.create_task(write())
        await asyncio.sleep(0.05)  # it waits for the lock in its thread
        task.cancel()
        await asyncio.sleep(0.01)
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await holding

    asyncio.run(main())
    assert not (project / "ran").exists() and still_open(ws) == []


def test_the_loop_goes_on_while_a_checkpoint_waits(ws: reprieve.Workspace) -> None:
    """A lock that somebody holds for a while must not stop other tasks."""
    ws.checkpoint("start")

    async def main() -> int:
        ticks = 0
        free = threading.Event()

        def hold() -> None:
            with ws._inner.store.lock(ws.id):
                free.wait(10)

        holding = asyncio.get_running_loop().run_in_executor(None, hold)
        await asyncio.sleep(0.02)

        async def guarded() -> None:
            async with ws.guard(name="x"):
                pass

        task = asyncio.create_task(guarded())
        for _ in range(20):
            await asyncio.sleep(0.005)
            ticks += not task.done()
        free.set()
        await asyncio.gather(task, holding)
        return ticks

    assert asyncio.run(main()) == 20


# -- several at once


def test_parallel_tasks_are_told_apart(ws: reprieve.Workspace, project: Path) -> None:
    """Each has its own window, its own end and its own effects."""
    ws.checkpoint("start")
    memory: dict[str, int] = {}

    async def call(n: int) -> str:
        async with ws.guard(name="tool", call=f"c{n}", session=f"s{n}") as step:
            await asyncio.sleep(0.01 * (5 - n))
            (project / f"out{n}").write_text(str(n))
            memory[f"k{n}"] = n
            ws.remember(f"k{n}", None, n, set=lambda _, n=n: memory.pop(f"k{n}"))
        return step.name

    async def main() -> list[str]:
        return await asyncio.gather(*(call(n) for n in range(5)))

    names = asyncio.run(main())
    assert names == [f"call:c{n}" for n in range(5)] and still_open(ws) == []
    assert {(effect.step, effect.actor) for effect in ws.effects()} == {
        (f"call:c{n}", f"python:s{n}") for n in range(5)
    }
    began = {opens(entry.data) for entry in ws.log() if opens(entry.data)}
    ended = [closes(entry.data) for entry in ws.log() if closes(entry.data)]
    assert len(ended) == 5 and began == set(ended)


def test_threads_share_one_workspace(ws: reprieve.Workspace, project: Path) -> None:
    @ws.guard(session="threads")
    def write(n: int) -> int:
        (project / f"t{n}").write_text(str(n))
        time.sleep(0.01)
        return n

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(write, range(12))) == list(range(12))
    assert still_open(ws) == [] and sum(1 for entry in ws.log() if closes(entry.data)) == 12
    ws.rollback([entry for entry in ws.log() if opens(entry.data)][-1])
    assert not list(project.glob("t[0-9]*"))


def test_a_call_inside_a_call_is_inside_of_its_window(ws: reprieve.Workspace, project: Path) -> None:
    with ws.guard(name="outer", call="outer"), ws.guard(name="inner", call="inner") as inner:
        (project / "deep").write_text("x")
    outer = next(w for entry in ws.log() for w in standing(entry.data).open if w.step == "call:outer")
    assert inner.window.parent == outer.id
    ws._inner.undo("call:outer")
    assert not (project / "deep").exists()


# -- fail closed


def test_a_full_disk_stops_the_callable(ws: reprieve.Workspace, project: Path) -> None:
    ws.checkpoint("start")
    ran: list[str] = []

    @ws.guard
    def act() -> None:
        ran.append("sync")

    @ws.guard
    async def act_async() -> None:
        ran.append("async")

    (project / "person.txt").write_text("new\n")
    with no_room():
        with pytest.raises(reprieve.ReprieveError) as caught:
            act()
        with pytest.raises(reprieve.ReprieveError):
            asyncio.run(act_async())
        with pytest.raises(reprieve.ReprieveError), ws.guard(name="block"):
            ran.append("block")
    assert ran == [] and caught.value.exit_code in (3, 10)
    act()
    assert ran == ["sync"] and still_open(ws) == []


def test_a_damaged_store_stops_the_callable(project: Path, home: Path) -> None:
    with reprieve.open(project) as first:
        first.checkpoint("start")
    ws = reprieve.open(project)
    whole = spoil(home)
    with pytest.raises(reprieve.ReprieveError), ws.guard(name="block"):
        pytest.fail("it ran")
    (home / "store.db").write_bytes(whole)
    ws.close()


def test_an_end_that_cannot_be_recorded_is_raised_and_recorded_later(ws: reprieve.Workspace, project: Path) -> None:
    ws.checkpoint("start")
    limit = no_room()
    with pytest.raises(reprieve.ReprieveError) as caught, ws.guard(name="one"):
        (project / "one").write_text("1")
        limit.__enter__()
    limit.__exit__(None, None, None)
    assert "was done" in caught.value.__notes__[0] and len(still_open(ws)) == 1
    with ws.guard(name="two"):
        (project / "two").write_text("2")
    assert still_open(ws) == []
    assert "one (its end was recorded late)" in [entry.label for entry in ws.log()]


def test_the_callables_own_exception_wins_over_one_that_seals_badly(ws: reprieve.Workspace, project: Path) -> None:
    ws.checkpoint("start")
    limit = no_room()
    with pytest.raises(KeyError) as caught, ws.guard(name="one", call="c1"):
        (project / "one").write_text("1")
        limit.__enter__()
        raise KeyError("mine")
    limit.__exit__(None, None, None)
    assert "could not record the end of 'call:c1'" in caught.value.__notes__[0]


@pytest.mark.parametrize("presses", [1, 2])
def test_an_interrupt_while_the_end_is_recorded_leaves_no_window_open(
    ws: reprieve.Workspace, project: Path, monkeypatch: pytest.MonkeyPatch, presses: int
) -> None:
    """What the person does after Ctrl-C is theirs: at once, or from the next block on if they pressed it again."""
    close, left = ws._inner.close_window, [presses]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        return close(*args, **kwargs)

    monkeypatch.setattr(ws._inner, "close_window", interrupted)
    with pytest.raises(KeyboardInterrupt), ws.guard(name="one") as one:
        (project / "one").write_text("1")
    assert len(still_open(ws)) == presses - 1
    if presses == 2:
        with ws.guard(name="two"):
            pass
    (project / "mine").write_text("a person's")
    assert still_open(ws) == []
    ws.checkpoint("later")
    assert ws.undo(one.id).deleted == (b"one",)
    assert (project / "mine").read_text() == "a person's"
