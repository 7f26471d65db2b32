"""`reprieve thread`: the states of agents on the command line, without the framework that made them."""

from __future__ import annotations

import json
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

import reprieve
from reprieve.frameworks.langgraph import ReprieveSaver
from support import Cli


def put(saver: ReprieveSaver, n: int, parent: str = "", thread: str = "order-7") -> str:
    checkpoint = empty_checkpoint()
    messages: list[Any] = []
    for k in range(n + 1):
        messages += [HumanMessage(f"question {k}", id=f"h{k}"), AIMessage(f"answer {k}", id=f"a{k}")]
    checkpoint["channel_values"] = {"messages": messages, "plan": {"step": n}}
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": parent or None}}
    saver.put(config, checkpoint, {"source": "loop", "step": n, "parents": {}}, {})
    return checkpoint["id"]


@pytest.fixture
def ids(project: Path, home: Path) -> list[str]:
    """A thread of the workspace with five states; each wrote a file of its own before."""
    made = [""]
    with reprieve.open(project) as ws, ReprieveSaver(ws) as saver:
        for n in range(5):
            (project / f"made{n}.txt").write_text(str(n))
            made.append(put(saver, n, made[-1]))
    return made[1:]


def test_list_and_show_tell_what_there_is(cli: Cli, ids: list[str]) -> None:
    (one,) = cli("thread", "list", "--json").json["threads"]
    assert (one["id"], one["states"], one["head"]) == ("order-7", 5, ids[4])
    assert "order-7  5 states" in cli("thread", "list").out
    shown = cli("thread", "show", "order-7", "--json").json["states"]
    assert [state["id"] for state in shown] == ids[::-1] and shown[0]["is_head"] and shown[0]["files"]
    state = cli("thread", "show", "order-7", ids[1], "--json").json["state"]
    assert state["values"]["plan"] == {"step": 1}
    assert state["values"]["messages"][2]["v"]["content"] == "question 1"
    assert "question 1" in cli("thread", "show", "order-7", "~3").out
    assert cli("thread", "show", "order-7", ids[2][-8:]).out.startswith(f"State:    {ids[2]}")


def test_show_tells_of_no_step_where_a_thread_has_none(cli: Cli, project: Path) -> None:
    with reprieve.open(project) as ws, reprieve.Conversation(ws, "chat") as chat:
        chat.append({"role": "user", "content": "hello"})
    out = cli("thread", "show", "conversation:chat").out
    assert "conversation" in out and "None" not in out


def test_diff_is_deep(cli: Cli, ids: list[str]) -> None:
    found = cli("thread", "diff", "order-7", ids[3], "--json").json["differences"]
    assert {tuple(one["path"]): one["change"] for one in found} == {
        ("messages", 8): "added",
        ("messages", 9): "added",
        ("plan", "step"): "changed",
    }
    assert "+ plan.step: 4" in cli("thread", "diff", "order-7", "~1", "head").out
    assert "No difference" in cli("thread", "diff", "order-7", "head").out


def test_rollback_and_back_again(cli: Cli, ids: list[str], project: Path) -> None:
    done = cli("thread", "rollback", "order-7", ids[1], "--json").json
    assert (done["restored_from"], done["rolled_back_from"]) == (ids[1], ids[4])
    head = cli("thread", "show", "order-7", "head", "--json").json["state"]
    assert head["values"]["plan"] == {"step": 1} and head["rolled_back_from"] == ids[4]
    assert (project / "made4.txt").exists(), "files only when asked for"
    assert "reprieve rollback" in cli("thread", "rollback", "order-7", ids[4]).out
    assert cli("thread", "show", "order-7", "head", "--json").json["state"]["values"]["plan"] == {"step": 4}
    assert len(cli("thread", "show", "order-7", "--json").json["states"]) == 7


def test_P34_the_files_of_the_moment_go_along_if_asked_for(cli: Cli, ids: list[str], project: Path) -> None:
    done = cli("thread", "rollback", "order-7", ids[1], "--files", "--json").json
    assert done["files_rolled_back"] and not (project / "made4.txt").exists() and (project / "made1.txt").exists()
    assert sorted(done["report"]["deleted"]) == ["made2.txt", "made3.txt", "made4.txt"]
    assert done["report"]["redo"] == "reprieve redo" and done["report"]["safety_checkpoint"]
    assert done["plan"]["target"] == done["files"]
    cli("redo")
    assert (project / "made4.txt").exists()
    assert cli("thread", "show", "order-7", "head", "--json").json["state"]["values"]["plan"] == {"step": 1}


def test_a_rollback_of_files_offers_the_state_of_that_moment(cli: Cli, ids: list[str], project: Path) -> None:
    files = cli("thread", "show", "order-7", ids[1], "--json").json["state"]["files"]
    assert f"reprieve thread rollback order-7 {ids[1]}" in cli("rollback", files).out
    assert not (project / "made4.txt").exists()
    assert cli("rollback", files, "--json").json["threads"] == [{"thread": "order-7", "state": ids[1]}]
    assert cli("thread", "show", "order-7", "head", "--json").json["state"]["id"] == ids[4], "only offered"


def test_what_cannot_be_rolled_back_leaves_the_files_alone(cli: Cli, ids: list[str], project: Path) -> None:
    (project / "made4.txt").write_text("mine")
    assert cli("thread", "rollback", "order-7", "head", "--files", check=False).code == 2
    assert (project / "made4.txt").read_text() == "mine"
    assert cli("thread", "rollback", "order-7", "nothing", check=False).code == 2
    assert cli("thread", "rollback", "none", "head", check=False).code == 2


def test_fork_handoff_and_adopt(cli: Cli, ids: list[str], project: Path) -> None:
    assert cli("thread", "fork", "order-7", ids[2], "other", "--json").json["forked_from"] == f"order-7:{ids[2]}"
    (project / "handoff.json").write_text(cli("thread", "handoff", "order-7", ids[3], "--to", "reviewer").out)
    assert json.loads((project / "handoff.json").read_text())["to_agent"] == "reviewer"
    adopted = cli("thread", "adopt", "handoff.json", "review", "--json").json
    assert adopted["verified"] and adopted["adopted_from"] == f"order-7:{ids[3]}"
    state = cli("thread", "show", "review", "head", "--json").json["state"]
    assert state["values"]["plan"] == {"step": 3} and state["adopted_from"]
    assert cli("thread", "fork", "order-7", ids[2], "other", check=False).code == 4
    described = json.loads((project / "handoff.json").read_text())
    for broken in ({**described, "sha256": "0" * 64}, {"thread_id": "order-7"}):
        done = cli("thread", "adopt", "-", "no", input=json.dumps(broken), check=False)
        assert done.code == 5, done
    assert cli("thread", "adopt", "handoff.txt", "no", check=False).code == 2
    assert {one["id"] for one in cli("thread", "list", "--json").json["threads"]} == {"order-7", "other", "review"}


def test_verify_says_what_is_wrong_and_ends_with_13(cli: Cli, ids: list[str], home: Path) -> None:
    (told,) = cli("thread", "verify", "--json").json["threads"]
    assert told["ok"] and told["states"] == 5
    assert cli("thread", "verify", "order-7", "--expect", told["hash"]).code == 0
    assert cli("thread", "verify", "order-7", "--expect", "0" * 64, check=False).code == 13
    (path,) = (home / "threads").glob("*.db")
    with sqlite3.connect(path) as sql:
        sql.execute("DELETE FROM entries WHERE seq = 2")
    done = cli("thread", "verify", "--json", check=False)
    assert done.code == 13
    assert [(p["status"], p["seq"]) for p in done.json["error"]["problems"]] == [("missing", 2)]


def test_search_finds_text(cli: Cli, ids: list[str]) -> None:
    hits = cli("thread", "search", "QUESTION 3", "--json").json["hits"]
    assert [(hit["thread"], hit["id"], hit["channel"]) for hit in hits] == [("order-7", ids[3], "messages")]
    assert "question 3" in cli("thread", "search", "question 3", "--thread", "order-7").out
    assert "Nothing found" in cli("thread", "search", "nowhere").out


def test_prune_and_delete_ask_first(cli: Cli, ids: list[str]) -> None:
    assert cli("thread", "prune", "order-7", "--dry-run", "--json").json["states"] == 4
    assert cli("thread", "prune", "order-7", check=False).code == 5
    assert len(cli("thread", "show", "order-7", "--json").json["states"]) == 5
    assert cli("thread", "prune", "order-7", "--keep", "2", "--yes", "--json").json["states"] == 3
    assert [s["id"] for s in cli("thread", "show", "order-7", "--json").json["states"]] == [ids[4], ids[3]]
    assert cli("thread", "verify").code == 0
    assert cli("thread", "delete", "order-7", check=False).code == 5
    assert cli("thread", "delete", "order-7", "--yes", "--json").json["states"] == 2
    assert cli("thread", "list", "--json").json["threads"] == []
    assert cli("thread", "show", "order-7", check=False).code == 2


def test_a_folder_with_threads_of_its_own(cli: Cli, project: Path) -> None:
    with ReprieveSaver(project / "state") as saver:
        first = put(saver, 0)
        put(saver, 1, first)
    assert cli("thread", "list", "--state", "state", "--json").json["threads"][0]["states"] == 2
    cli("thread", "rollback", "order-7", first, "--state", "state")
    assert cli("thread", "verify", "--state", "state").code == 0
    described = cli("thread", "handoff", "order-7", "--state", "state").out
    cli("checkpoint")
    cli("thread", "adopt", "-", "mine", "--from", "state", input=described)
    assert cli("thread", "show", "mine", "head", "--json").json["state"]["values"]["plan"] == {"step": 0}
    assert cli("thread", "list", "--state", "nowhere", check=False).code == 3


def test_looking_makes_nothing(cli: Cli, home: Path) -> None:
    cli("checkpoint")
    assert "No threads yet" in cli("thread", "list").out
    assert cli("thread", "verify", "--json").json["threads"] == []
    assert not (home / "threads").exists()
    assert cli("thread", "fly", check=False).code == 2
    assert cli("thread", "fork", "a", check=False).code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rollback", "order-7", "~3"), "Would roll back 'order-7'"),
        (("rollback", "order-7", "~3", "--files"), "made4.txt"),
        (("fork", "order-7", "~3", "other"), "'other' would begin"),
        (("prune", "order-7", "--yes"), "Would give up 4 states"),
        (("delete", "order-7", "--yes"), "Would delete 'order-7' with 5 states"),
    ],
)
def test_a_dry_run_shows_and_touches_nothing(
    cli: Cli, ids: list[str], project: Path, words: tuple[str, ...], said: str
) -> None:
    """What a person only wants to see must not happen: a thread that is deleted is gone for good."""
    before = cli("thread", "verify", "--json").json["threads"], cli("log", "--json").json
    assert said in cli("thread", *words, "--dry-run").out
    assert cli("thread", *words, "--dry-run", "--json").json["ok"]
    assert (cli("thread", "verify", "--json").json["threads"], cli("log", "--json").json) == before
    assert (project / "made4.txt").exists()


def test_a_dry_run_fails_where_the_real_one_would(cli: Cli, ids: list[str]) -> None:
    cli("thread", "fork", "order-7", ids[2], "other")
    assert cli("thread", "fork", "order-7", ids[2], "other", "--dry-run", check=False).code == 4
    assert cli("thread", "rollback", "order-7", "head", "--dry-run", check=False).code == 2
    assert cli("thread", "delete", "nobody", "--dry-run", check=False).code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("adopt", "handoff.json", "new", "--dry-run"),
        ("verify", "--dry-run"),
        ("fork", "order-7", "head", "new", "--files"),
        ("delete", "order-7", "--keep", "2", "--yes"),
    ],
)
def test_an_option_is_refused_where_it_would_be_ignored(cli: Cli, ids: list[str], words: tuple[str, ...]) -> None:
    assert cli("thread", *words, check=False).code == 2
    assert [one["id"] for one in cli("thread", "list", "--json").json["threads"]] == ["order-7"]


@pytest.fixture
def charged(project: Path, home: Path) -> list[str]:
    """A thread whose second step charged a card and wrote a file; afterwards a person wrote one, too."""
    with reprieve.open(project) as ws, ReprieveSaver(ws) as saver:
        first = put(saver, 0)
        with ws.guard(name="pay", session="s"):
            (project / "receipt.txt").write_text("the agent's")
            ws.record_http("POST", "http://127.0.0.1:9/charges", description="charged the card")
            ws.record_command(["true"], description="opened an account")
        second = put(saver, 1, first)
    (project / "mine.txt").write_text("a person's")
    return [first, second]


def test_files_that_go_along_are_reported_as_by_a_rollback(cli: Cli, charged: list[str], project: Path) -> None:
    """What stays, and what stands outside of the folder, is named; that it is not whole is in the exit code."""
    assert (
        "opened an account: it stands" in cli("thread", "rollback", "order-7", charged[0], "--files", "--dry-run").out
    )
    done = cli("thread", "rollback", "order-7", charged[0], "--files", check=False)
    assert done.code == 6
    assert not (project / "receipt.txt").exists() and (project / "mine.txt").exists()
    for said in (
        "charged the card: it is irreversible",
        "opened an account: it stands; undo it with: reprieve compensate",
        "kept      mine.txt",
        "Take this back with: reprieve redo",
        f"Take the thread back with: reprieve thread rollback order-7 {charged[1]}",
    ):
        assert said in done.out
    for line in done.out.splitlines():
        if line.startswith("Take"):
            cli(*line.partition(": reprieve ")[2].split())
    assert (project / "receipt.txt").read_text() == "the agent's"
    assert cli("thread", "show", "order-7", "head", "--json").json["state"]["values"]["plan"] == {"step": 1}


def test_the_report_of_files_that_go_along_is_in_the_answer(cli: Cli, charged: list[str]) -> None:
    done = cli("thread", "rollback", "order-7", charged[0], "--files", "--json", check=False)
    assert done.code == 6 and done.json["restored_from"] == charged[0]
    report = done.json["report"]
    assert [one["path"] for one in report["kept"]] == ["mine.txt"]
    assert {one["state"] for one in report["effects"]} == {"pending"} and len(report["effects"]) == 2
    assert len(cli("effects", "--pending", "--json").json["effects"]) == 2, "nothing was undone"


@pytest.mark.parametrize("thread", ["two words", "-dashed", "it's"])
def test_the_way_back_can_be_typed_as_it_is_said(cli: Cli, project: Path, thread: str) -> None:
    """With the folder that was named, and with a name that a shell would take apart."""
    with ReprieveSaver(project / "my state") as saver:
        first = put(saver, 0, thread=thread)
        put(saver, 1, first, thread=thread)
    done = cli("thread", "rollback", "--state", "my state", "--", thread, first)
    (line,) = [line for line in done.out.splitlines() if line.startswith("Take this back with: ")]
    cli(*shlex.split(line.partition(": reprieve ")[2]))
    head = cli("thread", "show", "--state", "my state", "--json", "--", thread, "head").json["state"]
    assert head["values"]["plan"] == {"step": 1}
