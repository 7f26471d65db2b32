"""HTTP calls under record, from the call to the rollback: conflicts, new ids, approvals, budgets, repeats."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import reprieve
from reprieve.app.effects import approvals_of
from reprieve.app.http_calls import HttpCalls
from reprieve.app.workspace import Workspace
from reprieve.effects.calls import Call
from reprieve.effects.journal import Journal
from reprieve.effects.rest import Rule
from reprieve.gateways import python_http
from support.shop import Shop, states, take_back


@pytest.fixture
def with_rules(ws: Workspace, project: Path) -> Iterator[dict[str, Rule]]:
    """Recorded with a catalog of rules by "METHOD /path", which the test fills."""
    rules: dict[str, Rule] = {}

    def find(call: Call) -> Rule | None:
        return rules.get(f"{call.method} {httpx.URL(call.url).path}")

    python_http.install(project, rules=find, on_repeat="replay")
    yield rules
    python_http.uninstall()


# -- conflicts


def test_bad_case_6_what_somebody_changed_since_is_a_conflict_and_nothing_is_touched(
    recorded: Workspace, shop: Shop
) -> None:
    shop.add("/items/1", name="one")
    httpx.put(shop.url + "/items/1", json={"name": "two"})
    made = httpx.post(shop.url + "/items", json={"name": "new"}).json()["id"]
    shop.things["/items/1"]["name"] = "a person's"
    shop.things[f"/items/{made}"]["name"] = "a person's"
    shop.seen.clear()
    with pytest.raises(reprieve.Conflict):
        take_back(recorded)
    assert shop.changes() == []
    assert states(take_back(recorded, on_conflict="keep")) == ["conflict", "conflict"]
    assert shop.changes() == [] and shop.things["/items/1"]["name"] == "a person's"


def test_bad_case_7_another_field_that_somebody_changed_stays(recorded: Workspace, shop: Shop) -> None:
    shop.add("/items/1", name="one", color="red")
    httpx.patch(shop.url + "/items/1", json={"name": "two"})
    shop.things["/items/1"]["color"] = "a person's"
    shop.versions["/items/1"] += 1
    assert states(take_back(recorded)) == ["undone"]
    assert shop.things["/items/1"] == {"id": 1, "name": "one", "color": "a person's"}


def test_bad_case_9_an_id_that_was_used_again_is_a_conflict(recorded: Workspace, shop: Shop) -> None:
    shop.add("/items/1", name="one")
    httpx.delete(shop.url + "/items/1")
    shop.add("/items/1", name="somebody else's")
    with pytest.raises(reprieve.Conflict):
        take_back(recorded)
    assert shop.things["/items/1"]["name"] == "somebody else's"


def test_bad_case_44_of_two_agents_at_one_thing_the_later_ones_word_stays(
    recorded: Workspace, project: Path, shop: Shop
) -> None:
    shop.add("/items/1", name="one")
    _, a = recorded.open_window("agent:a", "step a")
    httpx.put(shop.url + "/items/1", json={"name": "by a"})
    recorded.close_window(a)
    _, b = recorded.open_window("agent:b", "step b")
    httpx.put(shop.url + "/items/1", json={"name": "by b"})
    recorded.close_window(b)
    with pytest.raises(reprieve.Conflict):
        recorded.undo("step:step a", effects="undo")
    assert shop.things["/items/1"]["name"] == "by b"


def test_several_changes_of_one_thing_come_back_one_by_one(recorded: Workspace, shop: Shop) -> None:
    shop.add("/items/1", name="0")
    for n in range(1, 4):
        httpx.put(shop.url + "/items/1", json={"name": str(n)})
    httpx.delete(shop.url + "/items/1")
    assert states(take_back(recorded)) == ["undone"] * 4
    assert shop.things["/items/1"] == {"id": 1, "name": "0"}


# -- new names


def test_bad_case_25_what_comes_back_under_a_new_id_is_followed_by_older_inverses(
    recorded: Workspace, shop: Shop
) -> None:
    shop.can_put_new = False
    made = httpx.post(shop.url + "/items", json={"name": "a"}).json()["id"]
    httpx.post(f"{shop.url}/items/{made}", json={"name": "b"})
    httpx.post(f"{shop.url}/items/{made}/notes", json={"item_id": made, "text": "t"})
    httpx.delete(f"{shop.url}/items/{made}/notes/2")
    httpx.delete(f"{shop.url}/items/{made}")
    assert shop.things == {}
    shop.seen.clear()
    assert states(take_back(recorded)) == ["undone"] * 5
    assert shop.things == {}
    assert shop.changes() == [
        "PUT /items/1",
        "POST /items",  # back as 3
        "PUT /items/3/notes/2",
        "POST /items/3/notes",  # back as 4, of item 3
        "DELETE /items/3/notes/4",
        "POST /items/3",
        "DELETE /items/3",
    ]


def test_bad_case_48_what_is_still_shown_after_a_delete_is_waited_for_and_then_left_to_a_person(
    recorded: Workspace, shop: Shop
) -> None:
    for times, state in ((3, "undone"), (99, "manual")):
        made = httpx.post(shop.url + "/items", json={"name": "a"}).json()["id"]
        shop.ghosts[f"/items/{made}"] = times
        assert states(take_back(recorded)) == [state]


# -- outcomes


def test_bad_case_40_an_operation_is_asked_how_it_ended(recorded: Workspace, journal: Journal, shop: Shop) -> None:
    shop.add("/clusters/1", size=1)
    shop.operations["/operations/1"] = "running"
    shop.replies["PUT /clusters/1"] = (202, {}, {"Operation-Location": "/operations/1"})
    httpx.put(shop.url + "/clusters/1", json={"size": 5})
    del shop.replies["PUT /clusters/1"]
    (effect,) = journal.effects()
    assert (effect.state, effect.request["verify"]["is_operation"]) == ("unknown", True)  # type: ignore[index]
    assert states(take_back(recorded)) == ["manual"]
    shop.things["/clusters/1"]["size"] = 5
    shop.operations["/operations/1"] = "Succeeded"
    assert states(take_back(recorded)) == ["undone"]
    assert shop.things["/clusters/1"]["size"] == 1


def test_bad_case_45_what_was_under_way_during_a_rollback_is_undone_when_it_arrives(
    recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    """The agent's call is in flight; the rollback leaves a note; the late success is taken back at once."""
    arrived, go = threading.Event(), threading.Event()

    def wait(thing: dict[str, Any]) -> dict[str, Any]:
        return thing

    shop.add("/items/1", name="one")
    failed: list[BaseException] = []
    original = shop.lock

    class Gate:
        def __enter__(self) -> None:
            if threading.current_thread() is not holder and any(e.state == "intent" for e in peek()):
                arrived.set()
                go.wait(20)
            original.__enter__()

        def __exit__(self, *args: object) -> None:
            original.__exit__(*args)  # type: ignore[arg-type]

    holder = threading.current_thread()

    def peek() -> list[Any]:
        return list(journal.effects())

    shop.lock = Gate()  # type: ignore[assignment]

    def agent() -> None:
        try:
            httpx.put(shop.url + "/items/1", json={"name": "late"}, timeout=30)
        except reprieve.Refused as e:
            failed.append(e)

    thread = threading.Thread(target=agent)
    thread.start()
    assert arrived.wait(20)
    assert states(take_back(recorded)) == ["wanted"]
    go.set()
    thread.join()
    assert wait(shop.things["/items/1"]) == {"id": 1, "name": "one"}
    assert "was undone" in str(failed[0])


def test_bad_case_37_an_undo_that_is_told_to_come_later_waits_and_is_done_once(recorded: Workspace, shop: Shop) -> None:
    for n in range(20):
        httpx.post(shop.url + "/items", json={"n": n})
    shop.faults["DELETE"] = ["429", "503", "429"]
    assert states(take_back(recorded)) == ["undone"] * 20
    assert shop.things == {}
    assert [done for done in shop.done if done.startswith("DELETE")] == [f"DELETE /items/{n}" for n in range(20, 0, -1)]


def test_bad_case_47_an_undo_that_failed_in_the_middle_goes_on_later(recorded: Workspace, shop: Shop) -> None:
    for n in range(4):
        httpx.post(shop.url + "/items", json={"n": n})
    shop.faults["DELETE"] = ["403"]
    assert states(take_back(recorded)) == ["failed", "undone", "undone", "undone"]
    assert states(take_back(recorded)) == ["undone"]
    assert shop.things == {} and len([done for done in shop.done if done.startswith("DELETE")]) == 4


# -- policy


def test_P32_an_approved_call_passes_once(recorded: Workspace, journal: Journal, shop: Shop) -> None:
    def charge(amount: int) -> httpx.Response:
        return httpx.post(shop.url + "/charges", json={"amount": amount})

    with pytest.raises(reprieve.Refused) as refused:
        charge(5)
    approvals = approvals_of(journal, recorded)
    approvals.decide(str(refused.value.data["approval"]), is_approved=True)
    with pytest.raises(reprieve.Refused):
        charge(6)  # another action than the one that was approved
    assert charge(5).status_code == 201
    with pytest.raises(reprieve.Refused):
        charge(5)
    assert shop.changes() == ["POST /charges"]
    (effect,) = journal.effects()
    assert (effect.state, effect.cls, effect.inverse) == ("done", "irreversible", None)


def test_in_autopilot_what_cannot_be_taken_back_is_refused_and_the_rest_runs(
    project: Path, home: Path, shop: Shop
) -> None:
    """Also if the tree asks for the contrary: its own file can only tighten."""
    Path(os.environ["REPRIEVE_CONFIG"]).write_text('policy.mode = "autopilot"\n')
    (project / "reprieve.toml").write_text('policy.mode = "assist"\nbudget.deletions = 0\n')
    shop.add("/items/1", name="one")
    python_http.install(project)
    try:
        for confirmed in ({}, {"confirmed": True, "approval": "yes"}):
            with pytest.raises(reprieve.Refused, match="not sent"):
                httpx.post(shop.url + "/charges", json={"amount": 5, **confirmed})
        assert httpx.put(shop.url + "/items/1", json={"name": "two"}).status_code == 200
    finally:
        python_http.uninstall()
    assert shop.changes() == ["PUT /items/1"]


def test_bad_case_55_of_two_calls_at_once_one_gets_the_last_of_a_budget(project: Path, home: Path, shop: Shop) -> None:
    Path(os.environ["REPRIEVE_CONFIG"]).write_text("[budget]\nrequests_per_host = 10\ndeletions = 3\n")
    (project / "reprieve.toml").write_text("[budget]\nrequests_per_host = 5\ndeletions = 100\n")
    python_http.install(project)
    refused: list[str] = []

    def one(n: int) -> None:
        try:
            httpx.post(shop.url + "/items", json={"n": n})
        except reprieve.Refused as e:
            refused.append(str(e))

    try:
        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        python_http.uninstall()
    assert len(shop.things) == 5 == len(shop.changes())
    assert len(refused) == 3 and all("'requests_per_host 127.0.0.1' is used up: 5 of 5" in text for text in refused)


# -- rules and repeats


def test_a_rule_comes_before_convention_and_its_inverse_is_filled_from_the_answer(
    with_rules: dict[str, Rule], ws: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.replies["POST /v1/charges"] = (200, {"id": "ch_1"}, {})
    shop.replies["POST /v1/refunds"] = (200, {"id": "re_1"}, {})
    refund = {
        "method": "POST",
        "url": shop.url + "/v1/refunds",
        "form": {"charge": "{response.id}"},
        "is_idempotent": True,
    }
    with_rules["POST /v1/charges"] = Rule("shop.charge", "restorable", refund, is_keyed=True)
    with_rules["POST /ask"] = Rule("shop.ask", "read")
    httpx.post(shop.url + "/v1/charges", data={"amount": "5"})
    shop.replies["POST /ask"] = (200, {}, {})
    httpx.post(shop.url + "/ask")
    (effect,) = journal.effects()
    assert effect.rule == "shop.charge" and shop.headers[0]["Idempotency-Key"] == effect.idem
    assert states(take_back(ws)) == ["undone"]
    assert shop.changes() == ["POST /v1/charges", "POST /ask", "POST /v1/refunds"]
    assert shop.headers[-1]["Idempotency-Key"] == effect.undo_idem != effect.idem


def test_the_users_own_catalog_says_what_takes_a_call_back(
    project: Path, home: Path, ws: Workspace, journal: Journal, shop: Shop
) -> None:
    """A charge, approved by a person, comes back as one refund with what the answer said; a read is no effect."""
    own = Path(os.environ["REPRIEVE_CONFIG"]).parent / "catalog"
    own.mkdir()
    charge = {
        "id": "shop.charge",
        "class": "compensable",
        "response": {"id": "$.id"},
        "inverse": {"method": "POST", "path": "/v1/refunds", "form": {"charge": "{res.id}"}},
        "idempotency": "Idempotency-Key",
    }
    ask = {"id": "shop.ask", "class": "read"}
    change = {
        "id": "shop.change",
        "class": "reversible",
        "before": "/v1/plans/{path.id}",
        "inverse": {"method": "POST", "path": "/v1/plans/{path.id}", "json": {"name": "{before.name}"}},
    }
    rules = [
        {"host": ["127.0.0.1"], "method": ["POST"], "path": path, **rule}
        for path, rule in (("/v1/charges", charge), ("/v1/ask", ask), ("/v1/plans/(?P<id>[^/]+)", change))
    ]
    (own / "shop.json").write_text(json.dumps({"provider": "shop", "about": "A shop.", "requests": rules}))
    shop.replies["POST /v1/charges"] = (200, {"id": "ch_1"}, {})
    shop.replies["POST /v1/refunds"] = (200, {"id": "re_1"}, {})
    shop.replies["POST /v1/ask"] = (200, {}, {})
    shop.add("/v1/plans/a", name="old")
    python_http.install(project)
    try:
        httpx.post(shop.url + "/v1/ask", json={})
        assert httpx.post(shop.url + "/v1/plans/a", json={"name": "new"}).status_code == 200
        with pytest.raises(reprieve.Refused) as refused:
            httpx.post(shop.url + "/v1/charges", data={"amount": "5"})
        approvals_of(journal, ws).decide(str(refused.value.data["approval"]), is_approved=True)
        httpx.post(shop.url + "/v1/charges", data={"amount": "5"})
        assert [effect.rule for effect in journal.effects()] == ["shop.charge", "shop.change"]
        assert states(take_back(ws)) == ["undone", "undone"]
    finally:
        python_http.uninstall()
    assert shop.changes() == [
        "POST /v1/ask",
        "POST /v1/plans/a",
        "POST /v1/charges",
        "POST /v1/refunds",
        "POST /v1/plans/a",
    ]
    assert shop.things["/v1/plans/a"]["name"] == "old"


def test_the_shipped_catalog_comes_before_convention(recorded: Workspace) -> None:
    """By its shape this is a create that could be deleted; the catalog knows that money moves."""
    calls = python_http._here[0].calls
    talk = calls.exchange(Call("POST", "https://api.stripe.com/v1/transfers", (), b"amount=5"))
    with pytest.raises(reprieve.Refused, match="money leaves the account"):
        next(talk)


def test_bad_case_46_P32_a_repeat_of_what_survived_a_rollback_gets_the_old_answer(
    with_rules: dict[str, Rule], ws: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.replies["POST /v1/charges"] = (200, {"id": "ch_1"}, {})
    with_rules["POST /v1/charges"] = Rule("shop.charge", "restorable")  # lets it pass, and has no way back

    def charge(key: str) -> httpx.Response:
        return httpx.post(shop.url + "/v1/charges", json={"amount": 5, "idempotency_key": key})

    charge("0d9f3c1e-9b4e-4d6a-8f1b-000000000001")
    assert states(take_back(ws)) == ["irreversible"]
    again = charge("0d9f3c1e-9b4e-4d6a-8f1b-000000000002")
    assert again.json() == {"id": "ch_1"} and again.headers["Reprieve-Replayed"]
    assert shop.changes() == ["POST /v1/charges"]
    effect = next(journal.effects())
    journal.keep(effect.id)
    assert "Reprieve-Replayed" not in charge("0d9f3c1e-9b4e-4d6a-8f1b-000000000003").headers
    assert len(shop.changes()) == 2


def test_bad_case_46_without_replay_a_repeat_is_an_error(recorded: Workspace, journal: Journal, shop: Shop) -> None:
    shop.add("/items/1", name="one")
    httpx.put(shop.url + "/items/1", json={"name": "two"})
    shop.things["/items/1"]["name"] = "a person's"
    assert states(take_back(recorded, on_conflict="keep")) == ["conflict"]
    with pytest.raises(reprieve.Repeated):
        httpx.put(shop.url + "/items/1", json={"name": "two"})
    assert shop.things["/items/1"]["name"] == "a person's"


def test_bad_case_5_an_error_of_our_own_lets_nothing_pass(
    recorded: Workspace, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(HttpCalls, "_draft", broken)
    with pytest.raises(KeyError):
        httpx.post(shop.url + "/items", json={})
    assert shop.changes() == []


def test_bad_case_49_order_is_by_sequence_whatever_the_clock_says(project: Path, home: Path, shop: Shop) -> None:
    """The clock goes backwards between two writes of one thing."""
    from reprieve.app.finding import open_workspace

    times = iter(range(10**18, 0, -(10**15)))
    shop.add("/items/1", name="0")
    with open_workspace(str(project), create=True, clock=lambda: next(times)) as ws:
        ws.checkpoint("base")
        python_http.install(project)
        calls = python_http._here[0].calls
        calls.open()[1]._clock = lambda: next(times)
        try:
            for n in range(1, 4):
                httpx.put(shop.url + "/items/1", json={"name": str(n)})
            assert states(take_back(ws)) == ["undone"] * 3
        finally:
            python_http.uninstall()
    assert shop.things["/items/1"]["name"] == "0"


def test_json_images_round_trip(recorded: Workspace, shop: Shop) -> None:
    odd = {"n": None, "t": True, "f": 1.5e300, "big": 2**60, "s": "ü \u0000 {response.id} \ud83d\ude00", "l": [[], {}]}
    shop.add("/items/1", **odd)
    httpx.put(shop.url + "/items/1", json={"name": "two"})
    httpx.delete(shop.url + "/items/1")
    assert states(take_back(recorded)) == ["undone", "undone"]
    assert json.dumps(shop.things["/items/1"], sort_keys=True) == json.dumps({"id": 1, **odd}, sort_keys=True)
