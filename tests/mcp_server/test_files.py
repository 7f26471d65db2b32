"""The tools about files, as a client of the SDK sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.mcp import answering
from support.agentdesk import Agent, Person, drive
from support.settings import write_accepted


def test_a_rollback_is_planned_then_applied_after_a_persons_yes(server: Any, project: Path) -> None:
    """Two steps and one question; afterwards every byte is as it was, and a redo brings the change back."""
    before = (project / "README.md").read_bytes()
    person = Person()

    async def scenario(agent: Agent) -> None:
        made = await agent("checkpoint", label="before")
        assert made["checkpoint"]["label"] == "before"
        (project / "README.md").write_text("broken")
        (project / "new.txt").write_text("new")
        status = await agent("status")
        assert {c["path"]: c["change"] for c in status["changes"]} == {"README.md": "modified", "new.txt": "created"}
        assert "data" in status["notice"]
        diff = await agent("diff", paths=["README.md"])
        assert "+broken" in diff["patch"]
        planned = await agent("plan_rollback", ref="before")
        assert planned["needs_person"] is True
        assert (project / "new.txt").exists(), "a plan touches nothing"
        done = await agent("apply_plan", plan_id=planned["plan"]["id"])
        assert done["report"]["deleted"] == ["new.txt"]
        assert (project / "README.md").read_bytes() == before
        redo = await agent("redo")
        await agent("apply_plan", plan_id=redo["plan"]["id"])
        assert (project / "README.md").read_text() == "broken"

    drive(server, scenario, person=person)
    assert len(person.asked) == 2
    assert "delete new.txt" in person.asked[0]


def test_undo_and_revert_come_as_plans(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="one")
        (project / "README.md").write_text("broken")
        (project / "src" / "util.py").write_text("ANSWER = 43\n")
        reverted = await agent("revert", paths=["src/*.py"])
        assert [a["path"] for a in reverted["plan"]["actions"] if a["kind"] == "write"] == ["src/util.py"]
        await agent("apply_plan", plan_id=reverted["plan"]["id"])
        assert (project / "src" / "util.py").read_text() == "ANSWER = 42\n"
        assert (project / "README.md").read_text() == "broken"
        await agent("checkpoint", label="two")
        undone = await agent("undo")
        assert undone["plan"]["kind"] == "undo"

    drive(server, scenario, person=Person())


def test_a_plan_of_a_world_that_changed_is_not_applied(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        (project / "README.md").write_text("broken")
        planned = await agent("plan_rollback")
        (project / "later.txt").write_text("a person's")
        error = await agent.fails("apply_plan", plan_id=planned["plan"]["id"])
        assert error["code"] == "conflict"
        assert error["plan"]["id"] != planned["plan"]["id"]
        assert (project / "README.md").read_text() == "broken"
        assert (project / "later.txt").exists()

    drive(server, scenario, person=Person())


def test_lists_come_in_pages(server: Any, project: Path) -> None:
    for n in range(25):
        (project / f"f{n:02}").write_text("x")

    async def scenario(agent: Agent) -> None:
        for n in range(5):
            await agent("checkpoint", label=f"c{n}")
        first = await agent("log", limit=2)
        second = await agent("log", limit=2, cursor=first["next_cursor"])
        third = await agent("log", limit=2, cursor=second["next_cursor"])
        labels = [entry["label"] for one in (first, second, third) for entry in one["entries"]]
        assert labels == ["c4", "c3", "c2", "c1", "c0"]
        assert third["next_cursor"] is None
        for n in range(25):
            (project / f"f{n:02}").write_text("y")
        seen, cursor = [], ""
        while cursor is not None:
            page = await agent("status", limit=10, cursor=cursor)
            seen += [change["path"] for change in page["changes"]]
            cursor = page["next_cursor"]
        assert seen == sorted(f"f{n:02}" for n in range(25))
        assert (await agent.fails("log", cursor="-1"))["code"] == "usage"

    drive(server, scenario)


def test_tracked_paths_are_in_a_checkpoint_when_the_call_returns(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        tracked = await agent("track", paths=["README.md"])
        assert tracked["protected"] == ["README.md"]
        (project / "README.md").write_text("broken")
        planned = await agent("plan_rollback", ref=tracked["checkpoint"]["id"])
        await agent("apply_plan", plan_id=planned["plan"]["id"])

    drive(server, scenario, person=Person())
    assert (project / "README.md").read_text().startswith("# A project")


def test_only_what_a_checkpoint_holds_is_said_to_be_protected(server: Any, project: Path) -> None:
    """Excluded, too large, not there, behind a link: each with its reason, also in a folder that is held."""
    write_accepted(project, 'exclude = ["*.env", "cache/"]\nmax_file_size = "10 kB"\n')
    (project / "cache").mkdir()
    (project / "cache" / "thing").write_text("x")
    (project / "src" / "secret.env").write_text("x")
    (project / "large").write_bytes(b"x" * 20_000)
    (project / "way").symlink_to("src")
    asked = [
        "README.md", "src", ".env", "large", "cache/thing", "cache", "new.txt", "new.env", "cache/new", "way",
        "way/main.py", "empty",
    ]  # fmt: skip

    async def scenario(agent: Agent) -> None:
        told = await agent("track", paths=asked)
        assert told["protected"] == ["README.md", "src", "way", "empty"]
        reasons = {gap["path"]: gap["reason"] for gap in told["not_protected"]}
        excluded = {"src/secret.env", ".env", "cache/thing", "cache", "new.env", "cache/new"}
        assert {path for path, reason in reasons.items() if reason == "excluded by configuration"} == excluded
        assert "larger than max_file_size" in reasons["large"] and "is not there" in reasons["new.txt"]
        assert "'way' is no folder" in reasons["way/main.py"] and len(reasons) == len(excluded) + 3
        whole = await agent("track", paths=["."])
        assert whole["protected"] == ["."]
        assert {gap["path"] for gap in whole["not_protected"]} == {"src/secret.env", ".env", "cache", "large"}

    drive(server, scenario)


def test_the_same_objects_as_the_command_line(server: Any, project: Path, cli: Any) -> None:
    """Fields of the contract are equal, whichever front end is asked."""

    async def scenario(agent: Agent) -> dict[str, Any]:
        await agent("checkpoint", label="one")
        (project / "README.md").write_text("changed")
        return {"status": await agent("status"), "log": await agent("log"), "show": await agent("show", ref="one")}

    told = drive(server, scenario)
    status = cli("status", "--json").json
    assert {k: told["status"][k] for k in ("changes", "effects", "gaps", "since")} == {
        k: status[k] for k in ("changes", "effects", "gaps", "since")
    }
    assert told["log"]["entries"] == cli("log", "--json").json["entries"]
    assert told["show"]["entry"] == cli("show", "one", "--json").json["entry"]


def test_a_name_that_is_not_text_is_told_and_can_be_taken_back(server: Any, project: Path) -> None:
    """No JSON writer can write a lone surrogate; the byte is told as text, and a rollback of it works."""
    name = bytes(project) + b"/caf\xe9.txt"

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        with open(name, "w") as file:
            file.write("x")
        status = await agent("status")
        assert [c["path"] for c in status["changes"]] == ["caf\\udce9.txt"]
        planned = await agent("plan_rollback")
        await agent("apply_plan", plan_id=planned["plan"]["id"])

    drive(server, scenario, person=Person())
    assert not Path(name.decode("utf-8", "surrogateescape")).exists()


def test_long_work_tells_how_far_it_is(server: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_INTERVAL_S", 0.0)  # on a fast machine this takes less than the interval
    for n in range(3000):
        (project / f"f{n}").write_text(str(n))

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="many")
        assert agent.progress
        assert agent.progress[0][0] >= 0

    drive(server, scenario)
