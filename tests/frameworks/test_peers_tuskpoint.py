"""What goes wrong in TuskPoint's checkpointer (TP-01 to TP-22) does not go wrong here."""

from __future__ import annotations

import asyncio
import operator
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import reprieve
from frameworks.graphs import CONFIG
from reprieve.errors import Conflict, Refused, ReprieveError, StoreCorrupted, StoreFailed
from reprieve.frameworks.langgraph import ReprieveSaver


def put(saver: ReprieveSaver, n: int, *, thread: str = "t", ns: str = "", parent: str = "", **values: Any) -> str:
    """A state with these values; its id."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"n": n, **values}
    checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], f"{n + 1:012}.x")
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ns}}
    if parent:
        config["configurable"]["checkpoint_id"] = parent
    saver.put(config, checkpoint, {"source": "loop", "step": n, "parents": {}}, checkpoint["channel_versions"])
    return checkpoint["id"]


def grown(saver: ReprieveSaver, count: int = 5, thread: str = "t") -> list[str]:
    ids = [""]
    for n in range(count):
        ids.append(put(saver, n, thread=thread, parent=ids[-1], text=f"state {n} " * 20))
    return ids[1:]


def count(saver: ReprieveSaver, thread: str = "t") -> int:
    return len(list(saver.list({"configurable": {"thread_id": thread}})))


def database(saver: ReprieveSaver, path: Path) -> sqlite3.Connection:
    """The file behind the saver's back."""
    saver.close()
    return sqlite3.connect(path / "state" / "threads.db", isolation_level=None)


def test_TP01_a_read_error_never_makes_a_thread_look_empty(saver: ReprieveSaver, monkeypatch: Any) -> None:
    ids = grown(saver)
    store = saver._threads.store

    def fails(*args: Any, **words: Any) -> Any:
        raise StoreFailed("the disk reported an input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(store, "thread", fails)
        with pytest.raises(StoreFailed):
            put(saver, 9, parent=ids[-1])
    put(saver, 9, parent=ids[-1])
    assert count(saver) == 6 and saver.verify_trail("t")["ok"]


def test_TP02_threads_that_write_at_once_lose_nothing(saver: ReprieveSaver) -> None:
    workers = [threading.Thread(target=grown, args=(saver, 20)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert count(saver) == 80
    assert saver.verify_trail("t")["ok"]


def test_TP03_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from frameworks.test_peers_tuskpoint import *;"
        "grown(ReprieveSaver(sys.argv[1]), 15, sys.argv[3]); grown(ReprieveSaver(sys.argv[1]), 5, 'shared')"
    )
    tests = str(Path(__file__).resolve().parents[1])
    workers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "state"), tests, f"t{n}"]) for n in range(3)
    ]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0]
    with ReprieveSaver(tmp_path / "state") as saver:
        assert {thread: count(saver, thread) for thread in saver.threads()} == {
            "t0": 15,
            "t1": 15,
            "t2": 15,
            "shared": 15,
        }
        assert all(saver.verify_trail(thread)["ok"] for thread in saver.threads())


@pytest.mark.parametrize("act", ["fork", "adopt", "copy"])
def test_TP04_an_existing_thread_is_never_replaced(saver: ReprieveSaver, act: str) -> None:
    ids = grown(saver)
    grown(saver, 3, "other")
    described = saver.handoff_checkpoint("t")
    acts: dict[str, Callable[[], Any]] = {
        "fork": lambda: saver.fork("t", ids[0], "other"),
        "adopt": lambda: saver.adopt_checkpoint(described, "other"),
        "copy": lambda: saver.copy_thread("t", "other"),
    }
    with pytest.raises(Conflict):
        acts[act]()
    assert count(saver, "other") == 3


class Order(TypedDict):
    log: Annotated[list[str], operator.add]


def shop(saver: ReprieveSaver, charged: list[str]) -> Any:
    def charge(state: Order) -> Any:
        charged.append("x")
        return {"log": ["charged"]}

    def ask(state: Order) -> Any:
        return {"log": [f"answer {interrupt('ok?')}"]}

    builder = StateGraph(Order)
    builder.add_node("charge", charge)
    builder.add_node("ask", ask)
    builder.add_edge(START, "charge")
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("medium", ["memory", "disk"])
def test_TP05_P37_no_interrupt_is_lost_and_no_side_effect_runs_twice_in_200_runs(medium: str, tmp_path: Path) -> None:
    """Two nodes at once, one of which asks; 200 runs over three durabilities, sync and async."""
    runs = 200 if medium == "memory" else 60
    with ReprieveSaver(tmp_path / "state" if medium == "disk" else None) as saver:
        for n in range(runs):
            charged: list[str] = []
            graph = shop(saver, charged)
            config: Any = {"configurable": {"thread_id": f"run {n}"}}
            durability: Any = ("sync", "async", "exit")[n % 3]
            if n % 2:
                asyncio.run(graph.ainvoke({"log": []}, config, durability=durability))
            else:
                graph.invoke({"log": []}, config, durability=durability)
            assert [i.value for i in graph.get_state(config).interrupts] == ["ok?"], n
            graph.invoke(Command(resume="yes"), config, durability=durability)
            assert sorted(graph.get_state(config).values["log"]) == ["answer yes", "charged"], n
            assert charged == ["x"], n


def test_TP06_fifty_runs_make_as_many_checkpoints_as_they_should(on_disk: ReprieveSaver) -> None:
    builder = StateGraph(Order)
    builder.add_node("one", lambda state: {"log": ["1"]})
    builder.add_edge(START, "one")
    builder.add_edge("one", END)
    graph = builder.compile(checkpointer=on_disk)
    for _ in range(50):
        graph.invoke({"log": []}, CONFIG)
    assert count(on_disk) == 150


def test_TP08_P37_a_subgraphs_state_is_not_the_graphs(saver: ReprieveSaver) -> None:
    class Sum(TypedDict):
        n: int

    inner = StateGraph(Sum)
    inner.add_node("add", lambda state: {"n": state["n"] + 100 + interrupt("more?")})
    inner.add_edge(START, "add")
    builder = StateGraph(Sum)
    builder.add_node("sub", inner.compile())
    builder.add_node("last", lambda state: {"n": state["n"] + 5})
    builder.add_edge(START, "sub")
    builder.add_edge("sub", "last")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"n": 1}, CONFIG)
    assert graph.get_state(CONFIG).values == {"n": 1} and graph.get_state(CONFIG).next == ("sub",)
    assert graph.invoke(Command(resume=1), CONFIG) == {"n": 107}


def _damage(sql: sqlite3.Connection, act: str) -> None:
    acts = {
        "changed": ["UPDATE entries SET body = replace(CAST(body AS TEXT), 'state 2', 'STATE 2') WHERE seq = 3"],
        "moved": ["UPDATE entries SET id = 'x' WHERE seq = 3"],
        "deleted": ["DELETE FROM entries WHERE seq = 3"],
        "cut": ["DELETE FROM entries WHERE seq = 5"],
        "swapped": [
            "UPDATE entries SET body = (SELECT body FROM entries e WHERE e.seq = 2) WHERE seq = 4",
        ],
        "reordered": [
            "UPDATE entries SET seq = 99 WHERE seq = 2",
            "UPDATE entries SET seq = 2 WHERE seq = 3",
            "UPDATE entries SET seq = 3 WHERE seq = 99",
        ],
        "part changed": ["UPDATE parts SET body = CAST('V\"x\"' AS BLOB) WHERE number = 2"],
        "part deleted": ["DELETE FROM parts WHERE number = 2"],
        "head": ["UPDATE heads SET id = (SELECT id FROM entries WHERE seq = 1)"],
        "replaced": ["UPDATE entries SET is_current = 0 WHERE seq = 4"],
        "record": ["UPDATE threads SET hash = zeroblob(32)"],
    }
    for statement in acts[act]:
        sql.execute(statement)


@pytest.mark.parametrize(
    ("act", "status"),
    [
        ("changed", "tampered"), ("moved", "tampered"), ("deleted", "missing"), ("cut", "missing"),
        ("swapped", "tampered"), ("reordered", "tampered"), ("part changed", "tampered"), ("part deleted", "missing"),
        ("head", "tampered"), ("replaced", "tampered"), ("record", "tampered"),
    ],
)  # fmt: skip
def test_TP10_TP11_every_kind_of_tampering_is_noticed_and_told_from_loss(
    on_disk: ReprieveSaver, tmp_path: Path, act: str, status: str
) -> None:
    grown(on_disk)
    assert on_disk.verify_trail("t")["ok"]
    sql = database(on_disk, tmp_path)
    _damage(sql, act)
    sql.close()
    with ReprieveSaver(tmp_path / "state") as saver:
        found = saver.verify_trail("t")
        assert not found["ok"]
        assert {problem["status"] for problem in found["problems"]} == {status}, found["problems"]


def test_TP10_a_whole_thread_put_in_anothers_place_is_noticed(on_disk: ReprieveSaver, tmp_path: Path) -> None:
    grown(on_disk)
    grown(on_disk, 5, "other")
    sql = database(on_disk, tmp_path)
    sql.execute("UPDATE threads SET id = 'x' WHERE id = 't'")
    sql.execute("UPDATE threads SET id = 't' WHERE id = 'other'")
    sql.close()
    with ReprieveSaver(tmp_path / "state") as saver:
        assert not saver.verify_trail("t")["ok"]


def test_TP10_a_thread_that_was_cut_with_its_record_does_not_fit_the_hash_kept_elsewhere(
    on_disk: ReprieveSaver, tmp_path: Path
) -> None:
    ids = grown(on_disk)
    kept = on_disk.verify_trail("t")["head"]
    sql = database(on_disk, tmp_path)
    sql.execute("DELETE FROM entries WHERE seq = 5")
    sql.execute("UPDATE threads SET seq = 4, hash = (SELECT hash FROM entries WHERE seq = 4)")
    sql.execute("UPDATE heads SET id = ?", (ids[3],))
    sql.close()
    with ReprieveSaver(tmp_path / "state") as saver:
        assert saver.verify_trail("t")["ok"], "nothing inside can tell"
        assert not saver.verify_trail("t", expect=kept)["ok"]


def test_TP12_a_handoff_without_its_hash_or_of_something_else_is_refused(
    on_disk: ReprieveSaver, tmp_path: Path
) -> None:
    grown(on_disk)
    described = on_disk.handoff_checkpoint("t", to_agent="reviewer")
    assert described["to_agent"] == "reviewer" and len(described["sha256"]) == 64
    for broken in (
        {key: value for key, value in described.items() if key != "sha256"},
        {**described, "sha256": ""},
        {**described, "sha256": "0" * 64},
        {**described, "seq": 1},
    ):
        with pytest.raises(Refused):
            on_disk.adopt_checkpoint(broken, "mine")
    put(on_disk, 9)  # the source goes on; what was handed over stays what it was
    sql = database(on_disk, tmp_path)
    with ReprieveSaver(tmp_path / "state") as saver:
        made = saver.adopt_checkpoint(described, "mine")
        found = saver.get_tuple({"configurable": {"thread_id": "mine"}})
        assert made["verified"] and found is not None and found.checkpoint["channel_values"]["n"] == 4
        _damage(sql, "part changed")
        with pytest.raises(Refused, match="changed"):
            saver.adopt_checkpoint(described, "another")
        assert saver.get_tuple({"configurable": {"thread_id": "another"}}) is None
    sql.close()


def test_TP12_a_state_is_adopted_from_another_store(on_disk: ReprieveSaver) -> None:
    grown(on_disk)
    mine = ReprieveSaver()
    made = mine.adopt_checkpoint(on_disk.handoff_checkpoint("t"), "mine", source=on_disk)
    on_disk.delete_thread("t")
    found = mine.get_tuple({"configurable": {"thread_id": "mine"}})
    assert found is not None and found.checkpoint["channel_values"]["text"].startswith("state 4")
    assert made["adopted_from"].startswith("t:") and mine.verify_trail("mine")["ok"]


def test_TP15_P13_files_and_state_go_back_together(cli: object, project: Path) -> None:
    """P-13: one id leads to both."""
    with reprieve.open(project) as ws, ReprieveSaver(ws) as saver:
        builder = StateGraph(Order)

        def work(state: Order) -> Any:
            (project / "made.txt").write_text(f"{len(state['log'])}")
            return {"log": ["worked"]}

        builder.add_node("work", work)
        builder.add_edge(START, "work")
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"log": ["first"]}, CONFIG, durability="sync")
        good = graph.get_state(CONFIG)
        graph.invoke({"log": ["BAD"]}, CONFIG, durability="sync")
        assert (project / "made.txt").read_text() == "3"
        report = saver.rollback_to("t", good.config["configurable"]["checkpoint_id"], files=True)
        assert (project / "made.txt").read_text() == "1"
        assert graph.get_state(CONFIG).values == {"log": ["first", "worked"]}
        assert report["files"] and report["files_report"].restored == (b"made.txt",)
        ws.redo()
        assert (project / "made.txt").read_text() == "3"


def test_states_can_be_linked_with_the_newest_checkpoint_at_no_cost(cli: Any, project: Path, monkeypatch: Any) -> None:
    """And a rollback of the files names where the thread was then, though no state was made just then."""
    with reprieve.open(project) as ws, ReprieveSaver(ws, checkpoints=False) as saver:
        builder = StateGraph(Order)
        builder.add_node("work", lambda state: {"log": ["worked"]})
        builder.add_edge(START, "work")
        graph = builder.compile(checkpointer=saver)
        ws.checkpoint("one")
        taken = ws._inner.checkpoint
        monkeypatch.setattr(ws._inner, "checkpoint", None)  # whoever takes one fails
        graph.invoke({"log": ["first"]}, CONFIG, durability="sync")
        first = graph.get_state(CONFIG).config["configurable"]["checkpoint_id"]
        monkeypatch.setattr(ws._inner, "checkpoint", taken)
        (project / "made.txt").write_text("two")
        two = ws.checkpoint("two")
        (project / "made.txt").write_text("three")
        three = ws.checkpoint("three")
        graph.invoke({"log": ["second"]}, CONFIG, durability="sync")
        assert saver._threads.get("t").body["files"] == three.entry.id  # type: ignore[union-attr]
    assert cli("rollback", two.entry.id, "--json").json["threads"] == [{"thread": "t", "state": first}]
    assert (project / "made.txt").read_text() == "two"


def test_TP15_a_failing_file_checkpoint_stops_the_run(cli: object, project: Path, monkeypatch: Any) -> None:
    with reprieve.open(project) as ws, ReprieveSaver(ws) as saver:
        ran: list[str] = []
        builder = StateGraph(Order)
        builder.add_node("work", lambda state: ran.append("x") or {"log": ["worked"]})
        builder.add_edge(START, "work")
        graph = builder.compile(checkpointer=saver)

        def fails(*args: Any, **words: Any) -> Any:
            raise StoreFailed("the disk is full")

        monkeypatch.setattr(ws._inner, "checkpoint", fails)
        with pytest.raises(StoreFailed):
            graph.invoke({"log": []}, CONFIG, durability="sync")
        assert ran == []


@pytest.mark.parametrize("act", ["delete_thread", "prune"])
def test_TP16_what_is_deleted_is_nowhere_in_the_files(on_disk: ReprieveSaver, tmp_path: Path, act: str) -> None:
    secret = "sk-" + "Qz7" * 40
    put(on_disk, 0, messages=[HumanMessage(secret, id="s")] * 10, short=secret[:30])
    put(on_disk, 1)
    if act == "prune":
        on_disk.prune(["t"])
    else:
        on_disk.delete_thread("t")
    found = [path.name for path in (tmp_path / "state").iterdir() if secret[:30].encode() in path.read_bytes()]
    assert found == []


def test_a_deleted_thread_stays_deleted_against_late_writers(saver: ReprieveSaver) -> None:
    ids = grown(saver)
    late = empty_checkpoint()
    saver.delete_thread("t")
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ids[-1]}}
    with pytest.raises(Refused):
        saver.put(config, empty_checkpoint(), {"source": "loop", "step": 9, "parents": {}}, {})
    with pytest.raises(Refused):
        saver.put_writes(config, [("n", 1)], "task")
    first: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with pytest.raises(Refused):
        saver.put(first, late, {"source": "input", "step": -1, "parents": {}}, {})
    assert saver.get_tuple(first) is None and count(saver) == 0 and saver.threads() == []
    put(saver, 0)  # who begins anew may use the name again
    assert count(saver) == 1 and saver.threads() == ["t"]
    with pytest.raises(Refused):
        saver.put_writes(config, [("n", 1)], "task")
    assert saver.verify_trail("t")["ok"]


def test_TP18_a_list_of_one_reads_one(on_disk: ReprieveSaver, monkeypatch: Any) -> None:
    ids = grown(on_disk, 30)
    asked: list[int] = []
    real = on_disk._threads.store.states
    monkeypatch.setattr(on_disk._threads.store, "states", lambda *a, **k: [asked.append(k["limit"]), real(*a, **k)][1])
    found = list(on_disk.list(CONFIG, limit=1))
    assert [one.checkpoint["id"] for one in found] == ids[-1:] and asked == [1]


def test_TP19_an_error_written_again_is_kept_once(saver: ReprieveSaver) -> None:
    id = put(saver, 0)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": id}}
    for n in range(3):
        saver.put_writes(config, [("__error__", ValueError(f"try {n}"))], "task")
    found = saver.get_tuple(config)
    assert found is not None and found.pending_writes == [("task", "__error__", "ValueError('try 2')")]


def test_TP20_the_event_loop_goes_on_while_a_state_is_stored(saver: ReprieveSaver, monkeypatch: Any) -> None:
    real = saver._threads.put

    def slow(*args: Any, **words: Any) -> Any:
        time.sleep(0.3)
        return real(*args, **words)

    monkeypatch.setattr(saver._threads, "put", slow)

    async def play() -> int:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        work = asyncio.create_task(saver.aput(config, empty_checkpoint(), {}, {}))
        ticks = 0
        while not work.done():
            await asyncio.sleep(0.01)
            ticks += 1
        await work
        return ticks

    assert asyncio.run(play()) >= 5


def test_a_paused_list_holds_up_nobody(saver: ReprieveSaver) -> None:
    grown(saver, 40)

    async def play() -> int:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        seen = 0
        async for _ in saver.alist(CONFIG):
            seen += 1
            if seen == 1:
                await asyncio.wait_for(saver.aput(config, empty_checkpoint(), {}, {}), 10)
        return seen

    assert asyncio.run(play()) == 40


def test_TP21_P26_opening_the_store_again_changes_nothing(on_disk: ReprieveSaver, tmp_path: Path) -> None:
    """P-26: a new process finds the list, and can go back and forth."""
    ids = grown(on_disk)
    on_disk.rollback_to("t", ids[1])
    head = on_disk.verify_trail("t")["head"]
    on_disk.close()
    for _ in range(3):
        with ReprieveSaver(tmp_path / "state") as again:
            assert again.verify_trail("t")["head"] == head
            found = again.get_tuple(CONFIG)
            assert found is not None and found.checkpoint["channel_values"]["n"] == 1
    with ReprieveSaver(tmp_path / "state") as again:
        again.rollback_to("t", ids[4])
        found = again.get_tuple(CONFIG)
        assert found is not None and found.checkpoint["channel_values"]["n"] == 4


def test_TP22_the_difference_is_told_at_every_depth(saver: ReprieveSaver) -> None:
    first = put(saver, 0, plan={"steps": [{"do": "a"}, {"do": "b"}]}, messages=[HumanMessage("hi", id="1")])
    second = put(
        saver, 1, plan={"steps": [{"do": "a"}, {"do": "c"}]},
        messages=[HumanMessage("hi", id="1"), AIMessage("ho", id="2")],
    )  # fmt: skip
    found = {
        tuple(one["path"]): (one["change"], one["before"], one["after"])
        for one in saver.diff_checkpoints("t", first, second)
    }
    assert found[("plan", "steps", 1, "do")] == ("changed", "b", "c")
    assert found[("messages", 1)][0] == "added" and found[("n",)] == ("changed", 0, 1)
    assert len(found) == 3


def test_text_is_found_in_any_depth_of_any_channel(saver: ReprieveSaver) -> None:
    ids = grown(saver)
    put(
        saver,
        9,
        messages=[HumanMessage(f"talk {n} about Änderungen", id=str(n)) for n in range(30)],
        plan={"a": [{"b": "needle"}]},
    )
    grown(saver, 2, "other")
    assert [hit["checkpoint_id"] for hit in saver.search_history("STATE 3", thread_id="t")] == [ids[3]]
    assert {hit["thread_id"] for hit in saver.search_history("state 1 ")} == {"t", "other"}
    assert saver.search_history("needle")[0]["channel"] == "plan"
    assert "talk 17 about" in saver.search_history("TALK 17 ABOUT ÄNDER")[0]["text"]
    assert saver.search_history("nowhere") == [] and len(saver.search_history("state", limit=2)) == 2


def test_CT25_nothing_is_cut_short(saver: ReprieveSaver) -> None:
    text = "x" * 300_000
    put(saver, 0, messages=[HumanMessage(text, id="1")])
    found = saver.get_tuple(CONFIG)
    assert found is not None and found.checkpoint["channel_values"]["messages"][0].content == text


def test_writes_are_in_the_order_in_which_they_are_applied(saver: ReprieveSaver) -> None:
    id = put(saver, 0)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": id}}
    saver.put_writes(config, [("x", 1), ("y", 2)], "b", "path 2")
    saver.put_writes(config, [("x", 3)], "a", "path 2")
    saver.put_writes(config, [("x", 4)], "c", "path 1")
    saver.put_writes(config, [("x", 5)], "d")
    found = saver.get_tuple(config)
    assert found is not None and found.pending_writes is not None
    assert [write[2] for write in found.pending_writes] == [5, 4, 3, 1, 2]


def test_a_damaged_state_is_an_error_and_never_an_empty_one(on_disk: ReprieveSaver, tmp_path: Path) -> None:
    grown(on_disk)
    sql = database(on_disk, tmp_path)
    _damage(sql, "part changed")
    sql.execute("UPDATE entries SET body = CAST('{' AS BLOB) WHERE seq = 5")
    sql.close()
    with ReprieveSaver(tmp_path / "state") as saver:
        with pytest.raises(StoreCorrupted):
            saver.get_tuple(CONFIG)
        with pytest.raises(ReprieveError):
            list(saver.list(CONFIG))
