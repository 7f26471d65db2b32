"""HTTP calls under record, from the call to the rollback: conflicts, new ids, secrets, approvals, budgets, repeats."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import reprieve
from reprieve.app.effects import approvals_of, record_http
from reprieve.app.http_calls import HttpCalls
from reprieve.app.workspace import Workspace
from reprieve.effects.calls import Call
from reprieve.effects.journal import Journal
from reprieve.effects.rest import Rule
from reprieve.gateways import python_http
from reprieve.model.plan import Report
from support.shop import Shop

CANARY = "canary-7f3a9c2e5b1d"


@pytest.fixture
def with_rules(ws: Workspace, project: Path) -> Iterator[dict[str, Rule]]:
    """Recorded with a catalog of rules by "METHOD /path", which the test fills."""
    rules: dict[str, Rule] = {}

    def find(call: Call) -> Rule | None:
        return rules.get(f"{call.method} {httpx.URL(call.url).path}")

    python_http.install(project, rules=find, on_repeat="replay")
    yield rules
    python_http.uninstall()


def take_back(ws: Workspace, **options: Any) -> Report:
    report = ws.rollback("base", effects="undo", **options)[1]
    assert report is not None
    return report


def states(report: Report) -> list[str]:
    return [outcome.state for outcome in report.effects]


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


# -- secrets


def test_bad_case_29_E10_no_secret_is_in_the_store_and_the_undo_finds_it_by_its_reference(
    recorded: Workspace, journal: Journal, shop: Shop, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", CANARY)
    shop.add("/items/1", name="one", password=CANARY)
    shop.shown["/items/1"] = lambda thing: {k: v for k, v in thing.items() if k != "password"} | {"token": CANARY}
    headers = {"Authorization": f"Bearer {CANARY}", "X-Api-Key": CANARY, "Cookie": f"session={CANARY}"}
    with httpx.Client(headers=headers) as client:
        client.post(shop.url + "/items", json={"name": "new", "secret": CANARY})
        client.patch(shop.url + "/items/1", json={"name": "two"})
        with pytest.raises(reprieve.Refused):
            client.put(shop.url + "/items/1", json={"password": CANARY})
        with pytest.raises(reprieve.Refused):
            client.post(shop.url + f"/charges?api_key={CANARY}", json={"token": CANARY})
    inverse = next(journal.effects()).inverse
    assert inverse is not None and inverse["headers"] == {
        "accept": "*/*",
        "authorization": "Bearer env:SHOP_TOKEN",
        "x-api-key": "env:SHOP_TOKEN",
        "cookie": "credential:cookie@127.0.0.1",
    }
    for path in (path for path in home.rglob("*") if path.is_file()):
        assert CANARY.encode() not in path.read_bytes(), path
    shop.seen.clear()
    report = take_back(recorded)
    assert states(report) == ["failed", "failed"] and "'cookie' for 127.0.0.1" in report.effects[0].detail
    assert shop.seen == []
    monkeypatch.setenv("REPRIEVE_CREDENTIAL_COOKIE_127_0_0_1", f"session={CANARY}")
    shop.headers.clear()
    assert states(take_back(recorded)) == ["undone", "undone"]
    assert all(seen["authorization"] == f"Bearer {CANARY}" for seen in shop.headers)
    assert CANARY not in repr(list(journal.effects())) and CANARY not in repr(report)


@pytest.mark.parametrize(
    "query", ["?sp=rw&sig={}", "?X-Amz-Signature={}", "?key={}", "?access_token={}"], ids=["sas", "s3", "key", "token"]
)
def test_a_secret_in_a_url_is_not_kept_so_the_call_asks_first(
    query: str, recorded: Workspace, journal: Journal, shop: Shop, home: Path
) -> None:
    """Also of what lets an unanswered call be looked at later; the approval does not show it either."""
    shop.add("/items/1", name="one")

    def put() -> None:
        httpx.put(shop.url + "/items/1" + query.format(CANARY), json={"name": "two"})

    with pytest.raises(reprieve.Refused, match="its URL holds what seems to be a secret") as refused:
        put()
    approvals_of(journal, recorded).decide(str(refused.value.data["approval"]), is_approved=True)
    shop.faults["PUT"] = ["reset"]
    with pytest.raises(httpx.HTTPError):
        put()
    assert shop.changes() and CANARY not in repr(list(journal.effects())) and CANARY not in str(refused.value)
    for path in (path for path in home.rglob("*") if path.is_file()):
        assert CANARY.encode() not in path.read_bytes(), path


def test_a_token_in_the_place_of_a_user_is_not_kept(recorded: Workspace, shop: Shop, home: Path) -> None:
    with pytest.raises(reprieve.Refused, match=r"http://\*\*\*@"):
        httpx.put(shop.url.replace("//", "//tok@") + "/items/1", json={"name": "two"})
    assert shop.changes() == []


def test_a_secret_in_the_place_where_something_was_made_is_not_kept(
    recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.replies["POST /uploads"] = (201, {}, {"Location": f"/uploads/9?sig={CANARY}"})
    httpx.post(shop.url + "/uploads", json={"name": "a"})
    (effect,) = journal.effects()
    assert (effect.cls, effect.inverse) == ("irreversible", None) and CANARY not in repr(effect)


def test_headers_that_open_something_are_kept_by_reference_whatever_they_are_called(
    recorded: Workspace, journal: Journal, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", CANARY)
    headers = {"X-Project-Key": CANARY, "X-Account-Auth": CANARY, "X-Project-Id": "p1", "Idempotency-Key": "k1"}
    httpx.post(shop.url + "/items", json={"name": "new"}, headers=headers)
    (effect,) = journal.effects()
    kept = dict((effect.inverse or {})["headers"])  # type: ignore[call-overload]
    assert kept.pop("accept")
    assert kept == {"x-project-key": "env:SHOP_KEY", "x-account-auth": "env:SHOP_KEY", "x-project-id": "p1"}
    shop.headers.clear()
    assert states(take_back(recorded)) == ["undone"]
    assert all(seen["x-project-key"] == CANARY for seen in shop.headers)
    assert {seen.get("Idempotency-Key") for seen in shop.headers} == {None, effect.undo_idem}


@pytest.mark.parametrize(
    "undo",
    [
        {"json": {"login": {"password": CANARY}}},
        {"json": {"passwords": [CANARY]}},
        {"form": {"api_key": CANARY}},
        {"text": f"password={CANARY}"},
        {"json": {"t": "{response.token}"}},
        {"headers": {"X-Project-Key": CANARY}},
        {"check": {"url": "http://h.example/a/1", "json": {"password": CANARY}}},
        {"url": f"http://h.example/a/1?sig={CANARY}"},
    ],
    ids=["json", "list", "form", "text", "response", "header", "check", "url"],
)
def test_a_secret_in_an_undo_that_is_recorded_by_hand_is_refused(
    undo: dict[str, Any], ws: Workspace, journal: Journal, home: Path
) -> None:
    whole = {"method": "PUT", "url": "http://h.example/a/1", **undo}
    response = {"token": "ghp_" + CANARY.replace("-", "") * 2}
    with pytest.raises(reprieve.Refused) as refused:
        record_http(ws, method="POST", url="http://h.example/a", undo=whole, response=response)
    assert CANARY not in str(refused.value) and any("env:VARIABLE" in hint for hint in refused.value.hints)
    assert list(journal.effects()) == []


def test_a_secret_that_an_undo_needs_in_its_body_is_put_in_by_its_reference(
    ws: Workspace, journal: Journal, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("/users/1", password="agents", note="env:prod")
    monkeypatch.setenv("OLD_PASSWORD", CANARY)
    undo = {
        "method": "PUT",
        "url": shop.url + "/users/1",
        "json": {"password": "env:OLD_PASSWORD", "note": "env:prod"},
    }
    record_http(ws, method="PUT", url=shop.url + "/users/1", undo=undo)
    assert CANARY not in repr(list(journal.effects()))
    monkeypatch.setenv("OLD_PASSWORD", "another")
    report = take_back(ws)
    assert states(report) == ["failed"] and "not the one that the effect was made with" in report.effects[0].detail
    monkeypatch.setenv("OLD_PASSWORD", CANARY)
    assert states(take_back(ws)) == ["undone"]
    assert shop.things["/users/1"] == {"id": 1, "password": CANARY, "note": "env:prod"}


def test_bad_case_38_another_accounts_credential_is_refused(
    recorded: Workspace, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "the-first-account")
    httpx.post(shop.url + "/items", json={}, headers={"Authorization": "Bearer the-first-account"})
    monkeypatch.setenv("SHOP_TOKEN", "another-account")
    shop.seen.clear()
    report = take_back(recorded)
    assert states(report) == ["failed"] and "not the one that the effect was made with" in report.effects[0].detail
    assert shop.seen == []


def test_a_name_inside_this_network_is_undone_only_at_the_address_that_the_call_went_to(
    recorded: Workspace, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to, real = {"jira.inner": "127.0.0.1"}, socket.getaddrinfo

    def found(host: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return real(leads_to.get(name, name), *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    url = shop.url.replace("127.0.0.1", "jira.inner")
    httpx.post(url + "/items", json={"n": 1})
    leads_to["jira.inner"] = "127.0.0.2"
    report = take_back(recorded)
    assert states(report) == ["failed"] and "inside this network" in report.effects[0].detail
    leads_to["jira.inner"] = "127.0.0.1"
    assert states(take_back(recorded)) == ["undone"] and shop.things == {}


def test_a_signed_request_is_irreversible_because_nobody_else_can_sign(recorded: Workspace, shop: Shop) -> None:
    with pytest.raises(reprieve.Refused, match="signed"):
        httpx.post(shop.url + "/items", json={}, headers={"Authorization": "AWS4-HMAC-SHA256 Credential=x"})
    assert shop.changes() == []


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
