"""Every client that is recorded: a row before it leaves, the answer for the caller alone, and a way back."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

import reprieve
from reprieve.app.workspace import Workspace
from reprieve.effects.journal import Journal
from reprieve.gateways import python_http
from support.browsers import CLIENTS, Send
from support.shop import Shop

every_client = pytest.mark.parametrize("send", CLIENTS.values(), ids=CLIENTS)


def undone(ws: Workspace) -> list[tuple[str, str]]:
    report = ws.rollback("base", effects="undo")[1]
    assert report is not None
    return [(outcome.state, outcome.description.rpartition("/")[0].partition(" ")[0]) for outcome in report.effects]


@every_client
def test_four_kinds_of_calls_are_recorded_and_undone_in_reverse_order(
    send: Send, recorded: Workspace, shop: Shop
) -> None:
    shop.add("/items/1", name="one")
    shop.add("/items/2", name="two")
    before = json.dumps(shop.things)
    assert send("POST", shop.url + "/items", json={"name": "new"}) == (201, b'{"name": "new", "id": 3}')
    assert send("PATCH", shop.url + "/items/1", json={"name": "uno"})[0] == 200
    assert send("PUT", shop.url + "/items/9", json={"name": "nine"})[0] == 200
    assert send("DELETE", shop.url + "/items/2")[0] == 200
    assert send("GET", shop.url + "/items/1") == (200, b'{"id": 1, "name": "uno"}')
    shop.seen.clear()
    assert undone(recorded) == [("undone", "DELETE"), ("undone", "PUT"), ("undone", "PATCH"), ("undone", "POST")]
    assert json.dumps(shop.things, sort_keys=True) == json.dumps(json.loads(before), sort_keys=True)
    assert shop.changes() == ["PUT /items/2", "DELETE /items/9", "PATCH /items/1", "DELETE /items/3"]
    shop.seen.clear()
    assert undone(recorded) == []  # P-33: a second rollback sends nothing
    assert shop.seen == []


@every_client
@pytest.mark.parametrize("fault", ["reset", "500", "lost"])
def test_E03_bad_case_35_a_lost_answer_is_unknown_and_a_look_settles_it(
    send: Send, fault: str, recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    """The server did it and broke off, or broke off before; which of the two is seen by looking, never guessed."""
    shop.add("/items/1", name="one")
    shop.faults["PUT"] = [fault]
    try:
        send("PUT", shop.url + "/items/1", json={"name": "two"})
    except Exception:
        assert fault != "500"
    *again, effect = journal.effects()
    assert effect.state == "unknown"
    shop.seen.clear()
    assert undone(recorded) == [("undone", "PUT")] * (1 + len(again))
    assert shop.things["/items/1"] == {"id": 1, "name": "one"}
    if not again:  # aiohttp sends a PUT once more by itself, which is an effect of its own
        assert shop.changes() == ([] if fault == "lost" else ["PUT /items/1"])


@every_client
def test_E03_a_lost_answer_to_a_post_is_left_to_a_person(
    send: Send, recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.faults["POST"] = ["reset"]
    with pytest.raises(Exception):  # noqa: B017 - each client has its own
        send("POST", shop.url + "/items", json={"name": "x"})
    (effect,) = journal.effects()
    assert effect.state == "unknown"
    assert undone(recorded) == [("manual", "POST")]
    assert len(shop.things) == 1


@every_client
def test_a_call_that_never_left_is_refused(send: Send, recorded: Workspace, journal: Journal) -> None:
    with pytest.raises(Exception):  # noqa: B017 - each client has its own
        send("POST", "http://127.0.0.1:1/items", json={})
    (effect,) = journal.effects()
    assert effect.state == "refused" and "never left" in effect.detail


@every_client
def test_E03_refusals_are_no_effects(send: Send, recorded: Workspace, journal: Journal, shop: Shop) -> None:
    for status in ("429", "404", "409"):
        shop.faults["POST"] = [status]
        assert send("POST", shop.url + "/items", json={"n": status})[0] == int(status)
    assert {effect.state for effect in journal.effects()} == {"refused"}
    assert undone(recorded) == []


@every_client
def test_E03_a_slow_answer_is_read_and_an_endless_one_is_not(
    send: Send, recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.faults["POST"] = ["slow"]
    assert send("POST", shop.url + "/items", json={"name": "slow"}) == (201, b'{"name": "slow", "id": 1}')
    assert undone(recorded) == [("undone", "POST")]


@every_client
def test_bad_case_4_without_a_journal_nothing_is_sent(
    send: Send, recorded: Workspace, home: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = python_http._here[0].calls
    journal = calls.open()[1]

    def full(*_: object, **__: object) -> None:
        raise reprieve.StoreFailed("the disk is full")

    monkeypatch.setattr(journal.log, "append", full)
    with pytest.raises(reprieve.StoreFailed):
        send("POST", shop.url + "/items", json={})
    assert shop.changes() == []


@every_client
def test_what_policy_refuses_is_not_sent(send: Send, recorded: Workspace, journal: Journal, shop: Shop) -> None:
    with pytest.raises(reprieve.Refused, match="waits for a person"):
        send("POST", shop.url + "/charges", json={"amount": 5})
    assert shop.seen == [] and list(journal.effects()) == []


def test_E03_an_endless_answer_is_passed_on_and_the_effect_noted(
    recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    import aiohttp
    import httpx
    import requests

    shop.faults["POST"] = ["endless"] * 3
    with httpx.stream("POST", shop.url + "/items", json={"by": "httpx"}) as endless:
        assert next(endless.iter_bytes(100)).startswith(b'{"by": "httpx"')
    with requests.post(shop.url + "/items", json={"by": "requests"}, stream=True, timeout=10) as streamed:
        assert next(streamed.iter_content(100)).startswith(b'{"by": "requests"')

    async def go() -> bytes:
        async with aiohttp.ClientSession() as session, session.post(shop.url + "/items", json={"by": "aio"}) as done:
            return await done.content.readexactly(12)

    assert asyncio.run(go()).startswith(b'{"by": "aio"')
    assert [effect.state for effect in journal.effects()] == ["done"] * 3


def test_bad_case_43_streamed_uploads_and_packed_answers_pass_unharmed(
    recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    import aiohttp
    import httpx
    import requests

    data = bytes(range(256)) * 2000
    pieces = [data[at : at + 50_000] for at in range(0, len(data), 50_000)]
    shop.raw["/files/a"] = ("application/octet-stream", b"old")
    assert httpx.put(shop.url + "/files/a", content=iter(pieces)).status_code == 204
    assert shop.raw["/files/a"][1] == data
    assert requests.put(shop.url + "/files/b", data=iter(pieces), timeout=10).status_code == 204
    assert shop.raw["/files/b"][1] == data

    async def go() -> int:
        async def bits() -> object:
            for piece in pieces:
                yield piece

        async with aiohttp.ClientSession() as session, session.put(shop.url + "/files/c", data=bits()) as done:
            return done.status

    assert asyncio.run(go()) == 204 and shop.raw["/files/c"][1] == data
    shop.add("/boxes/5")
    packed = gzip.compress(b'{"id": 5}')
    shop.replies["POST /boxes"] = (201, packed, {"Content-Encoding": "gzip", "Location": "/boxes/5"})
    assert httpx.post(shop.url + "/boxes", json={}).json() == {"id": 5}
    assert requests.post(shop.url + "/boxes", json={}, timeout=10).json() == {"id": 5}
    with httpx.stream("POST", shop.url + "/boxes", json={}) as raw:
        assert b"".join(raw.iter_raw()) == packed
    del shop.replies["POST /boxes"]
    states = [state for state, _ in undone(recorded)]
    assert shop.raw["/files/a"][1] == b"old" and "/files/b" not in shop.raw and "/files/c" not in shop.raw
    assert states.count("undone") == 6


def test_a_redirect_is_recorded_hop_by_hop(recorded: Workspace, journal: Journal, shop: Shop) -> None:
    import httpx
    import requests

    shop.replies["POST /old"] = (307, {}, {"Location": "/items"})
    shop.replies["GET /old"] = (200, [], {})
    for post in (lambda: httpx.post(shop.url + "/old", json={"a": 1}, follow_redirects=True),
                 lambda: requests.post(shop.url + "/old", json={"a": 1}, timeout=10)):  # fmt: skip
        assert post().status_code == 201
    assert [effect.state for effect in journal.effects()] == ["done", "refused", "done", "refused"]
    assert undone(recorded) == [("undone", "POST")] * 2


def test_uninstalled_it_leaves_the_clients_as_they_were(project: Path, home: Path, shop: Shop) -> None:
    import aiohttp
    import httpx
    import urllib3

    def places() -> list[object]:
        return [
            httpx.HTTPTransport.handle_request,
            httpx.AsyncHTTPTransport.handle_async_request,
            urllib3.connectionpool.HTTPConnectionPool._make_request,
            aiohttp.ClientSession._request,
        ]

    before = places()
    python_http.install(project)
    python_http.install(project)
    assert all(now is not then for now, then in zip(places(), before, strict=True))
    with pytest.raises(reprieve.Usage):
        python_http.install(project.parent / "project" / "..")
    python_http.uninstall()
    assert places() == before
