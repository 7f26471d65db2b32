"""What opens something is in no row of HTTP calls under record: an undo finds it by its reference."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

import reprieve
from reprieve.app.effects import approvals_of, record_http
from reprieve.app.workspace import Workspace
from reprieve.effects.journal import Journal
from support.shop import Shop, states, take_back

CANARY = "canary-7f3a9c2e5b1d"


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
