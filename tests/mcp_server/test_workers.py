"""Threads that do the calls, and the wire that answers leave by."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reprieve.app.finding import open_workspace
from reprieve.errors import Misconfigured
from reprieve.mcp import answering, workers
from reprieve.mcp.answering import Wire
from reprieve.mcp.stdio import Outlet
from reprieve.mcp.tool import Desk
from reprieve.mcp.workers import Workers
from reprieve.model.reporter import Reporter


def in_a_worker(*jobs: Callable[[], Any]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        pool = Workers(8)
        return [await pool.run(job) for job in jobs]

    return anyio.run(all_of_them)


def test_calls_one_after_the_other_use_one_thread_and_one_connection(project: Path) -> None:
    desk = Desk(str(project))

    def job() -> tuple[int, object]:
        with desk.workspace(Reporter(), create=True) as ws:
            ws.checkpoint("x")
            return threading.get_ident(), ws.store._db._here().sql

    found = in_a_worker(job, job, job)
    assert len(set(found)) == 1


def test_a_call_that_failed_leaves_nothing_open_for_the_next(project: Path) -> None:
    desk = Desk(str(project))

    def good() -> object:
        with desk.workspace(Reporter(), create=True) as ws:
            ws.checkpoint("x")
            return ws.store._db

    def bad() -> None:
        with pytest.raises(ZeroDivisionError), desk.workspace(Reporter()):
            raise ZeroDivisionError

    first, _, second = in_a_worker(good, bad, good)
    assert first is not second
    assert first._is_closed


def test_errors_reach_the_caller(project: Path) -> None:
    def job() -> None:
        with Desk(str(project)).workspace(Reporter()):
            pass

    with pytest.raises(Misconfigured):
        in_a_worker(job)


def test_an_error_is_gone_when_it_was_told() -> None:
    """Without the garbage collector: thousands of wrong calls would else be kept until it comes by."""
    known: list[weakref.ref[BaseException]] = []

    def job() -> None:
        raise Misconfigured("wrong")

    async def call() -> None:
        pool = Workers(1)
        try:
            await pool.run(job)
        except Misconfigured as error:
            known.append(weakref.ref(error))
        await pool.run(lambda: None)

    gc.disable()
    try:
        anyio.run(call)
        assert known[0]() is None
    finally:
        gc.enable()


def test_there_are_never_more_threads_than_allowed_and_idle_ones_end(project: Path) -> None:
    seen: set[int] = set()
    closed: list[int] = []

    def job() -> None:
        seen.add(threading.get_ident())
        kept = workers.kept()
        assert kept is not None
        kept.close = lambda: closed.append(threading.get_ident())  # type: ignore[method-assign]
        time.sleep(0.01)

    async def many() -> None:
        pool = Workers(3, idle_s=0.2)
        async with anyio.create_task_group() as group:
            for _ in range(30):
                group.start_soon(pool.run, job)
        assert len(seen) <= 3
        while len(closed) < len(seen):
            await anyio.sleep(0.05)
        assert not pool._idle
        await pool.run(job)  # and a new one begins

    anyio.run(many)


def test_what_was_begun_is_finished_when_its_caller_gives_up() -> None:
    finished = threading.Event()

    def job() -> None:
        time.sleep(0.2)
        finished.set()

    async def give_up() -> None:
        pool = Workers(1)
        with anyio.move_on_after(0.05) as scope:
            await pool.run(job)
        assert scope.cancel_called
        assert finished.is_set()

    anyio.run(give_up)


def test_a_worker_whose_loop_is_gone_ends_and_is_chosen_no_more() -> None:
    pool = Workers(1)
    worker = workers._Worker(pool)
    worker.start()
    loop = asyncio.new_event_loop()
    done = loop.create_future()
    loop.close()
    worker.jobs.put((lambda: None, loop, done))
    worker.join(30)
    assert not worker.is_alive()
    assert not pool._idle


def test_work_never_waits_for_its_progress_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_INTERVAL_S", 0)
    told: list[float] = []

    async def call() -> None:
        has_room = anyio.Event()

        async def send(done: float, total: float | None, message: str) -> None:
            told.append(done)
            await has_room.wait()

        wire, pool = Wire(send, asyncio.get_running_loop()), Workers(1)

        def job(first: int) -> None:
            for n in range(first, first + 5):
                wire.progress("reading", done=n)

        with anyio.fail_after(30):
            await pool.run(lambda: job(0))
            has_room.set()
            while wire._telling is None or not wire._telling.done():
                await anyio.sleep(0.001)
            await pool.run(lambda: wire.progress("reading", done=10))

    # in a thread, and not waited for at the end: what waits here waits for ever
    thread = threading.Thread(target=anyio.run, args=(call,), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert told == [0, 10]


@pytest.mark.parametrize("error", [anyio.BrokenResourceError, asyncio.CancelledError])
def test_progress_ends_when_nobody_listens_and_the_work_goes_on(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_INTERVAL_S", 0)
    told: list[float] = []

    async def send(done: float, total: float | None, message: str) -> None:
        told.append(done)
        raise error

    async def call() -> None:
        wire, pool = Wire(send, asyncio.get_running_loop()), Workers(1)
        for n in range(4):
            await pool.run(lambda n=n: wire.progress("reading", done=n))  # type: ignore[misc]
            await anyio.sleep(0.01)

    anyio.run(call)
    assert told == [0]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_slow_reader_gets_every_byte_and_stops_nobody_else(kind: str) -> None:
    if kind == "pipe":
        reading, writing = os.pipe()
    else:
        reading, writing = (end.detach() for end in socket.socketpair())
    text = "äx" * 500_000
    got = bytearray()
    ticks = 0

    async def talk() -> None:
        nonlocal ticks
        done = anyio.Event()

        async def write() -> None:
            await Outlet(writing).write(text)
            os.close(writing)
            done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            for _ in range(20):  # nobody reads, and the loop goes round
                await anyio.sleep(0.005)
                ticks += 1
            assert not done.is_set()
            while piece := await anyio.to_thread.run_sync(os.read, reading, 1 << 16):
                got.extend(piece)

    try:
        anyio.run(talk)
    finally:
        os.close(reading)
    assert ticks == 20
    assert got.decode() == text


def test_who_gives_up_waiting_tears_no_line_and_who_reads_no_more_is_an_error() -> None:
    reading, writing = os.pipe()
    long, short = "x" * 300_000 + "\n", "y\n"

    async def talk() -> bytes:
        outlet = Outlet(writing)
        with anyio.move_on_after(0.05) as scope:
            await outlet.write(long)
        assert scope.cancelled_caught
        got = b""
        async with anyio.create_task_group() as group:
            group.start_soon(outlet.write, short)
            while len(got) < len(long) + len(short):
                got += await anyio.to_thread.run_sync(os.read, reading, 1 << 16)
        os.close(reading)
        for _ in range(2):
            with pytest.raises(anyio.BrokenResourceError):
                await outlet.write(short)
        return got

    try:
        assert anyio.run(talk).decode() == long + short
    finally:
        os.close(writing)


def test_what_else_is_printed_is_no_message() -> None:
    program = (
        "import os, anyio\n"
        "from reprieve.mcp.stdio import own_stdout\n"
        "with own_stdout() as out:\n"
        "    os.system('echo of a child')\n"
        "    print('of a library', flush=True)\n"
        "    anyio.run(out.write, 'message\\n')\n"
        "print('after')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "message\nafter\n"
    assert ran.stderr == "of a child\nof a library\n"


class Client:
    """A client of few lines, over the standard streams of a server that tells of every step."""

    def __init__(self, project: Path) -> None:
        program = (
            "import sys\n"
            "from reprieve.mcp import answering\n"
            "from reprieve.mcp.server import serve_stdio\n"
            "answering._INTERVAL_S = 0\n"
            "serve_stdio(sys.argv[1])\n"
        )
        self.server = subprocess.Popen(
            [sys.executable, "-c", program, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.to, self.out = self.server.stdin, self.server.stdout
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        self.send("initialize", hello, id=0)
        self.out.readline()
        self.send("notifications/initialized", {})

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        self.server.wait()
        self.to.close()
        self.out.close()

    def send(self, method: str, params: dict[str, Any], **more: int) -> None:
        self.to.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode() + b"\n")
        self.to.flush()

    def fall_behind(self) -> None:
        """More answers than a pipe holds, unread."""
        for id in range(1, 20):
            self.send("tools/list", {}, id=id)
        time.sleep(1)


def test_a_client_that_reads_after_it_closed_our_input_gets_whole_lines(project: Path) -> None:
    with Client(project) as client:
        client.fall_behind()
        client.to.close()
        time.sleep(1)
        got = client.out.read()
        assert client.server.wait(60) == 0
    assert got.endswith(b"\n")
    assert [json.loads(line)["id"] for line in got.splitlines()] == list(range(1, 20))


def test_a_client_that_never_reads_again_keeps_neither_the_server_nor_its_lock(project: Path) -> None:
    for n in range(3000):  # enough for progress
        (project / f"f{n}").write_text(str(n))
    with open_workspace(str(project), create=True) as ws, Client(project) as client:
        client.fall_behind()
        call = {"name": "reprieve_checkpoint", "arguments": {"label": "a"}, "_meta": {"progressToken": "t"}}
        client.send("tools/call", call, id=99)
        deadline = time.monotonic() + 30
        while not list(ws.log()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [entry.label for entry in ws.log()] == ["a"]
        with ws.store.lock(ws.id, wait_s=30):
            pass
        client.to.close()
        assert client.server.wait(60) == 0
