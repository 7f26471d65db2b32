"""What the documents of walkback and TuskPoint promise for their tools, done through ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agentdesk import Agent, Person, drive
from support.api import Api, serving
from support.postoffice import Sink


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        yield api


async def apply(agent: Agent, planned: dict[str, Any]) -> dict[str, Any]:
    return await agent("apply_plan", plan_id=planned["plan"]["id"])


def test_walkback_checkpoint_track_edit_rollback_redo(server: Any, project: Path) -> None:
    """Checkpoint, name what will change, wreck it, see status and diff, roll back byte for byte, redo."""
    before = {p: p.read_bytes() for p in project.rglob("*") if p.is_file() and not p.is_symlink()}

    async def scenario(agent: Agent) -> None:
        cp = (await agent("checkpoint", label="before refactor"))["checkpoint"]["id"]
        await agent("track", paths=["src", "README.md"])
        (project / "src" / "main.py").unlink()
        (project / "README.md").write_text("oops")
        (project / "src" / "new").mkdir()
        (project / "src" / "new" / "x.py").write_text("x = 1\n")
        status = await agent("status")
        assert {c["path"] for c in status["changes"]} >= {"src/main.py", "README.md", "src/new/x.py"}
        assert "deleted file mode" in (await agent("diff"))["patch"]
        assert any(e["label"] == "before refactor" for e in (await agent("log"))["entries"])
        done = await apply(agent, await agent("plan_rollback", ref=cp))
        assert done["is_whole"]
        assert {p: p.read_bytes() for p in before} == before
        assert not (project / "src" / "new").exists()
        await apply(agent, await agent("redo"))
        assert (project / "README.md").read_text() == "oops"
        await apply(agent, await agent("revert", paths=["README.md"], to=cp))
        assert (project / "README.md").read_bytes() == before[project / "README.md"]
        assert not (project / "src" / "main.py").exists()

    drive(server, scenario, person=Person())


def test_walkback_http_calls_are_compensated_newest_first(server: Any, project: Path, api: Api) -> None:
    """Record each mutation with its compensator; a dry look lists them, executing sends them once, in reverse."""

    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before the calls")
        for n in (1, 2):
            api.things[str(n)] = {}
            await agent(
                "record_http", method="POST", url=f"{api.url}/things", response={"id": n},
                undo={"method": "DELETE", "url": f"{api.url}/things/{{response.id}}", "is_idempotent": True},
            )  # fmt: skip
        await agent("record_http", method="POST", url=f"{api.url}/charges")  # no compensator
        planned = await agent("compensate", ref="before the calls")
        verbs = [action["verb"] for action in planned["plan"]["actions"]]
        assert verbs == ["leave", "undo", "undo"]
        assert not api.changes()
        done = await apply(agent, planned)
        assert not done["is_whole"], "what has no compensator is named, not forgotten"
        api.settle()
        sent = [(seen.method, seen.path) for seen in api.changes()]
        assert sent == [("DELETE", "/things/2"), ("DELETE", "/things/1")]
        again = await agent("compensate", ref="before the calls")
        assert [a["verb"] for a in again["plan"]["actions"]] == ["leave"]

    drive(server, scenario, person=Person())


def test_walkback_a_reversal_command_runs_once_after_a_yes(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before")
        os.mkdir(project.parent / "deployed")
        await agent("record_reversal", description="deployed", argv=["/bin/rmdir", str(project.parent / "deployed")])
        planned = await agent("compensate", ref="before")
        assert (project.parent / "deployed").exists()
        await apply(agent, planned)
        assert not (project.parent / "deployed").exists()
        assert (await agent("effects", pending=True))["effects"] == []

    drive(server, scenario, person=Person())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_walkback_mail_is_held_then_released_or_unsent(server: Any, project: Path, tmp_path: Path, mode: str) -> None:
    """Staged mail is not delivered; a person's yes delivers it once; a cancelled one never leaves."""
    person = Person()
    with Sink() as sink:
        (tmp_path / "config.toml").write_text(sink.settings())

        async def scenario(agent: Agent) -> None:
            letter = {"to": ["jane@example.org"], "body": "Dear Jane"}
            first = (await agent("mail_stage", subject="Offer", **letter))["effect"]["id"]
            second = (await agent("mail_stage", subject="Mistake", **letter))["effect"]["id"]
            assert len((await agent("mail_pending"))["effects"]) == 2
            assert not sink.arrived
            sent = await agent("mail_release", ids=[first])
            assert sent["sent"] == 1
            assert (await agent("mail_cancel", ids=[second]))["cancelled"] == 1
            assert (await agent.fails("mail_release", ids=[first]))["code"] == "refused"
            assert (await agent.fails("mail_release", ids=[second]))["code"] == "refused"

        drive(server, scenario, mode=mode, person=person)
        sink.settle()
        assert [b"Subject: Offer" in one.data for one in sink.arrived] == [True]
    assert len(person.asked) == 1
    assert "jane@example.org" in person.asked[0]


def test_walkback_mail_leaves_no_sooner_than_a_person_says(server: Any, project: Path, tmp_path: Path) -> None:
    with Sink() as sink:
        (tmp_path / "config.toml").write_text(sink.settings())

        async def scenario(agent: Agent) -> None:
            staged = await agent("mail_stage", to=["jane@example.org"], subject="Offer", body="x")
            error = await agent.fails("mail_release", ids=[staged["effect"]["id"]])
            assert error["code"] == "refused"
            assert error["approval"]

        drive(server, scenario)
        sink.settle()
        assert not sink.arrived


def test_tuskpoint_save_list_load_resume_diff(server: Any, project: Path) -> None:
    """States are saved under a thread, listed newest first, loaded by id, resumed from the newest, compared deeply."""

    async def scenario(agent: Agent) -> None:
        first = (await agent("thread_save", thread="run-1", state={"step": "plan", "facts": {"a": 1}}))["state"]["id"]
        second = (await agent("thread_save", thread="run-1", state={"step": "act", "facts": {"a": 2}}))["state"]["id"]
        listed = await agent("thread_list", thread="run-1")
        assert [s["id"] for s in listed["states"]] == [second, first]
        assert listed["states"][0]["parent"] == first
        assert (await agent("thread_load", thread="run-1", state=first))["state"]["values"]["step"] == "plan"
        assert (await agent("thread_load", thread="run-1"))["state"]["id"] == second
        diff = await agent("thread_diff", thread="run-1", before=first, after=second)
        assert {(tuple(d["path"]), d["before"], d["after"]) for d in diff["differences"]} == {
            (("step",), "plan", "act"),
            (("facts", "a"), 1, 2),
        }
        assert [t["id"] for t in (await agent("thread_list"))["threads"]] == ["run-1"]

    drive(server, scenario)


def test_tuskpoint_rollback_is_a_new_head_and_erases_nothing(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        first = (await agent("thread_save", thread="t", state={"n": 1}))["state"]["id"]
        second = (await agent("thread_save", thread="t", state={"n": 2}))["state"]["id"]
        planned = await agent("thread_rollback", thread="t", state=first)
        assert planned["needs_person"] is False, "nothing of a thread is ever erased"
        await apply(agent, planned)
        head = (await agent("thread_load", thread="t"))["state"]
        assert head["values"] == {"n": 1}
        assert head["rolled_back_from"] == second and head["restored_from"] == first
        assert len((await agent("thread_list", thread="t"))["states"]) == 3
        assert (await agent("thread_load", thread="t", state=second))["state"]["values"] == {"n": 2}

    drive(server, scenario)


def test_tuskpoint_a_state_and_its_files_go_back_together(server: Any, project: Path) -> None:
    """Beyond what they promise: the folder of that moment comes along, after a person's yes."""

    async def scenario(agent: Agent) -> None:
        await agent("thread_save", thread="t", state={"n": 1}, with_files=True)
        (project / "README.md").write_text("later")
        await agent("thread_save", thread="t", state={"n": 2}, with_files=True)
        planned = await agent("thread_rollback", thread="t", with_files=True)
        assert planned["needs_person"] is True
        await apply(agent, planned)
        assert (await agent("thread_load", thread="t"))["state"]["values"] == {"n": 1}

    drive(server, scenario, person=Person())
    assert (project / "README.md").read_text().startswith("# A project")


def test_tuskpoint_fork_leaves_the_source_alone(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        first = (await agent("thread_save", thread="t", state={"n": 1}))["state"]["id"]
        await agent("thread_save", thread="t", state={"n": 2})
        forked = await agent("thread_fork", thread="t", state=first, new_thread="branch")
        assert forked["forked_from"] == f"t:{first}"
        await agent("thread_save", thread="branch", state={"n": 10})
        assert (await agent("thread_load", thread="t"))["state"]["values"] == {"n": 2}
        assert (await agent("thread_load", thread="branch"))["state"]["values"] == {"n": 10}
        assert (await agent.fails("thread_fork", thread="t", state=first, new_thread="branch"))["code"] == "conflict"

    drive(server, scenario)


def test_tuskpoint_handoff_adopt_and_verify(server: Any, project: Path) -> None:
    """What is handed over is taken over only if it is exactly that; a changed descriptor is refused."""

    async def scenario(agent: Agent) -> None:
        await agent("thread_save", thread="research", state={"findings": ["x"]})
        handed = (await agent("thread_handoff", thread="research", to_agent="writer"))["handoff"]
        assert handed["to_agent"] == "writer"
        adopted = await agent("thread_adopt", handoff=handed, new_thread="writing")
        assert adopted["verified"] is True
        assert (await agent("thread_load", thread="writing"))["state"]["values"] == {"findings": ["x"]}
        forged = {**handed, "sha256": "0" * 64}
        assert (await agent.fails("thread_adopt", handoff=forged, new_thread="other"))["code"] == "refused"
        proven = await agent("thread_verify")
        assert all(t["ok"] for t in proven["threads"]) and len(proven["threads"]) == 2

    drive(server, scenario)


def test_tuskpoint_a_tampered_trail_is_an_error_that_names_it(server: Any, project: Path, home: Path) -> None:
    import sqlite3

    async def scenario(agent: Agent) -> None:
        await agent("thread_save", thread="t", state={"n": 1})
        await agent("thread_save", thread="t", state={"n": 2})
        (database,) = (home / "threads").glob("*.db")
        with sqlite3.connect(database) as db:
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            (name,) = [t for t in tables if t.startswith("entr")]
            db.execute(f"UPDATE {name} SET created_at = created_at + 1 WHERE seq = 1")
        db.close()
        error = await agent.fails("thread_verify", thread="t")
        assert error["code"] == "store_corrupted"
        assert error["problems"]

    drive(server, scenario)


def test_tuskpoint_search_finds_states_by_what_they_say(server: Any, project: Path) -> None:
    async def scenario(agent: Agent) -> None:
        await agent("checkpoint", label="before the Zürich migration")
        await agent("thread_save", thread="a", state={"note": "the customer lives in Zürich"})
        await agent("thread_save", thread="b", state={"note": "nothing here"})
        found = await agent("search", query="zürich")
        assert [hit["thread"] for hit in found["hits"]] == ["a"]
        assert [entry["label"] for entry in found["entries"]] == ["before the Zürich migration"]

    drive(server, scenario)
