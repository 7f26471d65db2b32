"""The undo of an HTTP call takes nothing that was there before it, and is never claimed without proof."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import reprieve
from reprieve.app import journals
from reprieve.app.workspace import Workspace
from reprieve.effects.journal import Journal
from reprieve.model.effect import EffectDraft
from support.shop import Shop, states, take_back

# -- what was there before the agent


@pytest.mark.parametrize("headers", [{}, {"Location": "/contacts/7"}], ids=["id", "location"])
def test_an_upsert_that_wrote_over_what_was_there_is_named_and_deletes_nothing(
    headers: dict[str, str], recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    """POST /contacts answers 200 with the contact that it found by its address: it was there before the agent."""
    shop.add("/contacts/7", email="ann@example.org", notes="ten years of history")
    shop.replies["POST /contacts"] = (200, shop.things["/contacts/7"], headers)
    httpx.post(shop.url + "/contacts", json={"email": "ann@example.org", "phone": "1"})
    (effect,) = journal.effects()
    assert (effect.cls, effect.inverse) == ("irreversible", None)
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "irreversible" and "nothing says that something was made" in outcome.detail
    assert shop.changes() == ["POST /contacts"] and "/contacts/7" in shop.things


@pytest.mark.parametrize("answer", [(200, {"ok": True}), (207, {"items": []})], ids=["says nothing", "batch"])
def test_an_inverse_that_the_answer_does_not_bear_out_is_not_run(
    answer: tuple[int, Any], recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    """Before the call a DELETE was to be expected: the id is the caller's and nothing is there. The answer decides."""
    shop.replies["POST /items"] = (*answer, {})
    httpx.post(shop.url + "/items", json={"id": 5, "name": "new"})
    (effect,) = journal.effects()
    assert (effect.cls, effect.inverse) == ("irreversible", None)
    shop.add("/items/5", name="new")
    assert states(take_back(recorded)) == ["irreversible"]
    assert shop.changes() == ["POST /items"] and "/items/5" in shop.things


@pytest.mark.parametrize("headers", [{"Location": "/folders/f1/9"}, {}], ids=["location", "id"])
def test_what_a_post_made_in_the_thing_that_was_asked_is_deleted(
    headers: dict[str, str], recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    """A folder, an LDP container: its own before-image sent again would only make a second child."""
    shop.add("/folders/f1", name="root")
    shop.replies["POST /folders/f1"] = (201, {"id": 9, "name": "new"}, headers)
    shop.add("/folders/f1/9", name="new")
    httpx.post(shop.url + "/folders/f1", json={"name": "new"})
    (effect,) = journal.effects()
    assert (effect.cls, effect.inverse and effect.inverse["method"]) == ("restorable", "DELETE")
    assert states(take_back(recorded)) == ["undone"]
    assert shop.changes() == ["POST /folders/f1", "DELETE /folders/f1/9"]
    assert shop.things == {"/folders/f1": {"id": "f1", "name": "root"}}


@pytest.mark.parametrize(
    "answer",
    [
        (201, {}, {}),
        (201, {}, {"Location": "/folders/f1"}),
        (200, {"id": 9}, {}),
        (200, {}, {"Location": "/folders/f1/9"}),
        (200, {"ok": True}, {}),
        (204, None, {}),
        (303, None, {"Location": "/done"}),
    ],
    ids=["201", "201 and itself", "another id", "another place", "says nothing", "empty", "redirect"],
)
def test_a_post_that_does_not_show_to_have_changed_the_thing_is_irreversible(
    answer: tuple[int, Any, dict[str, str]], recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.add("/folders/f1", name="root")
    shop.replies["POST /folders/f1"] = answer
    httpx.post(shop.url + "/folders/f1", json={"name": "new"})
    (effect,) = journal.effects()
    assert (effect.cls, effect.inverse) == ("irreversible", None)
    assert states(take_back(recorded)) == ["irreversible"]
    assert shop.changes() == ["POST /folders/f1"]


def test_a_post_that_no_look_followed_is_not_called_undone_because_nothing_changed(
    recorded: Workspace, shop: Shop
) -> None:
    shop.add("/folders/f1", name="root")
    shop.replies["POST /folders/f1"] = (200, {"ok": True}, {})
    shop.faults["GET"] = ["", "503"]  # the look before is answered, the one after is not
    httpx.post(shop.url + "/folders/f1", json={"name": "new"})
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "failed" and "may have done something else instead" in outcome.detail
    assert shop.changes() == ["POST /folders/f1"]


def test_an_update_that_an_older_journal_holds_of_what_made_something_is_not_sent(
    ws: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.add("/folders/f1", name="root")
    url = shop.url + "/folders/f1"
    inverse = {
        "kind": "http",
        "method": "POST",
        "url": url,
        "origin": shop.url,
        "json": {"name": "root"},
        "check": {"url": url, "json": {"name": "root"}, "is_part": True},
        "is_verified": True,
    }
    draft = EffectDraft("http", "reversible", url, "POST", inverse=inverse, request={"method": "POST", "url": url})
    journal.record(draft, journals.place(ws), after={"status": 200}, reply={"status": 201})
    assert states(take_back(ws)) == ["failed"] and shop.changes() == []


# -- fields with names that servers use too

NAMES = ["version", "links", "views", "revision", "modified", "updated", "last_modified"]


@pytest.mark.parametrize("how", ["PATCH", "PUT", "PUT that makes it", "POST that makes it"])
@pytest.mark.parametrize("name", NAMES)
def test_a_persons_change_of_the_field_that_the_call_sent_is_a_conflict(
    name: str, how: str, recorded: Workspace, shop: Shop
) -> None:
    method, is_made = how.split()[0], "makes" in how
    if not is_made:
        shop.add("/items/1", **{name: 1})
    at = shop.url + ("/items" if method == "POST" else "/items/1")
    httpx.request(method, at, json={name: 2})
    shop.things["/items/1"][name] = 3
    with pytest.raises(reprieve.Conflict):
        take_back(recorded)
    assert shop.things["/items/1"][name] == 3


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_persons_change_of_a_field_that_the_undo_would_write_is_a_conflict(
    name: str, recorded: Workspace, shop: Shop
) -> None:
    """What a PATCH added goes by a PUT of the whole, and with it all that it did not touch."""
    shop.add("/items/1", title="a", **{name: "1.0"})
    httpx.patch(shop.url + "/items/1", json={"new": True})
    shop.things["/items/1"][name] = "3.0"
    with pytest.raises(reprieve.Conflict):
        take_back(recorded)
    assert shop.things["/items/1"][name] == "3.0"


def test_what_a_server_counts_by_itself_stands_in_nobodys_way(recorded: Workspace, shop: Shop) -> None:
    """Each write has a number and a time, each look is counted; whole things are sent back as they were got."""
    looks = iter(range(1000))

    def stamped(thing: dict[str, Any]) -> dict[str, Any]:
        version = shop.versions[f"/items/{thing['id']}"]
        when = f"2026-01-01T00:00:{version:02}Z"
        return {**thing, "version": version, "modified": when, "updated_at": when, "views": next(looks)}

    shop.add("/items/1", name="one")
    shop.shown = {"/items/1": stamped, "/items/2": stamped}
    httpx.put(shop.url + "/items/1", json={**httpx.get(shop.url + "/items/1").json(), "name": "two"})
    httpx.patch(shop.url + "/items/1", json={"name": "three"})
    httpx.put(shop.url + "/items/1", json={"name": "four"})
    httpx.post(shop.url + "/items", json={"name": "new"})
    httpx.patch(shop.url + "/items/2", json={"name": "newer"})
    httpx.delete(shop.url + "/items/2")
    assert states(take_back(recorded)) == ["undone"] * 6
    assert shop.things["/items/1"]["name"] == "one" and "/items/2" not in shop.things


@pytest.mark.parametrize("name", ["version", "last_modified"])
def test_an_unanswered_change_of_such_a_field_is_seen_to_have_happened(
    name: str, recorded: Workspace, shop: Shop
) -> None:
    shop.add("/items/1", **{name: "1.0"})
    shop.faults["PATCH"] = ["reset"]
    with pytest.raises(httpx.HTTPError):
        httpx.patch(shop.url + "/items/1", json={name: "2.0"})
    assert states(take_back(recorded)) == ["undone"]
    assert shop.things["/items/1"][name] == "1.0"


def test_when_it_was_touched_stands_in_nobodys_way_also_without_an_after_image(recorded: Workspace, shop: Shop) -> None:
    shop.add("/items/1", name="one")
    shop.shown["/items/1"] = lambda thing: {**thing, "updated_at": shop.versions["/items/1"]}
    shop.faults["GET"] = ["", "503"]  # the look before is answered, the one after is not
    httpx.put(shop.url + "/items/1", json={"name": "two"})
    assert states(take_back(recorded)) == ["undone"]


@pytest.mark.parametrize("name", ["links", "url", "revision"])
def test_a_field_that_the_server_does_not_take_back_is_not_called_undone(
    name: str, recorded: Workspace, shop: Shop
) -> None:
    shop.add("/items/1", **{name: "old"})
    httpx.patch(shop.url + "/items/1", json={name: "new"})
    shop.replies["PATCH /items/1"] = (200, {}, {})
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "manual" and outcome.detail.endswith(f"it is not as it was in: {name}")


# -- what the call added

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.mark.parametrize("headers", [MERGE, {}], ids=["by its type", "as the look after shows"])
def test_what_a_merge_added_inside_is_taken_away_again(
    headers: dict[str, str], recorded: Workspace, shop: Shop
) -> None:
    """The old object, sent again, takes nothing away from a merge."""
    shop.merging = ("PATCH",)
    shop.add("/items/1", labels={"a": "1", "b": {"c": 1}}, note="n")
    httpx.patch(shop.url + "/items/1", json={"labels": {"evil": "yes", "b": {"d": 2}}}, headers=headers)
    assert states(take_back(recorded)) == ["undone"]
    assert shop.things["/items/1"] == {"id": 1, "labels": {"a": "1", "b": {"c": 1}}, "note": "n"}


def test_what_a_merge_added_or_took_at_the_top_comes_back_as_it_was(recorded: Workspace, shop: Shop) -> None:
    shop.merging = ("PATCH",)
    shop.add("/items/1", note="n", size={"w": 1})
    httpx.patch(shop.url + "/items/1", json={"admin": True, "note": None, "size": 5}, headers=MERGE)
    assert states(take_back(recorded)) == ["undone"]
    assert shop.things["/items/1"] == {"id": 1, "note": "n", "size": {"w": 1}}
    assert shop.changes() == ["PATCH /items/1", "PATCH /items/1"]


def test_what_somebody_added_beside_it_stays(recorded: Workspace, shop: Shop) -> None:
    shop.merging = ("PATCH",)
    shop.add("/items/1", labels={"a": "1"})
    httpx.patch(shop.url + "/items/1", json={"labels": {"evil": "yes"}}, headers=MERGE)
    shop.things["/items/1"]["labels"]["mine"] = "a person's"
    assert states(take_back(recorded)) == ["undone"]
    assert shop.things["/items/1"]["labels"] == {"a": "1", "mine": "a person's"}


def test_what_somebody_put_into_an_object_that_the_call_made_is_a_conflict(recorded: Workspace, shop: Shop) -> None:
    """To take the object away would take theirs along."""
    shop.merging = ("PATCH",)
    shop.add("/items/1")
    httpx.patch(shop.url + "/items/1", json={"labels": {"evil": "yes"}}, headers=MERGE)
    shop.things["/items/1"]["labels"]["mine"] = "a person's"
    with pytest.raises(reprieve.Conflict):
        take_back(recorded)
    assert shop.things["/items/1"]["labels"]["mine"] == "a person's"


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_what_is_still_there_because_a_put_merges_is_not_called_undone(
    method: str, recorded: Workspace, shop: Shop
) -> None:
    shop.merging = ("PUT", "PATCH")
    shop.add("/items/1", name="one")
    httpx.request(method, shop.url + "/items/1", json={"name": "two", "admin": True})
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "manual" and outcome.detail.endswith("but it still has: admin")


def test_what_is_still_there_inside_is_not_called_undone_where_no_look_told_that_it_merges(
    recorded: Workspace, shop: Shop
) -> None:
    shop.merging = ("PATCH",)
    shop.add("/items/1", labels={"a": "1"})
    shop.faults["GET"] = ["", "503"]  # the look before is answered, the one after is not
    httpx.patch(shop.url + "/items/1", json={"labels": {"a": "2", "evil": "yes"}})
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "manual" and outcome.detail.endswith("but it still has: labels.evil")


# -- what a look does not show


def test_what_is_not_found_where_a_post_should_have_put_it_is_named(recorded: Workspace, shop: Shop) -> None:
    """The comment lives at /comments/99: a 404 beneath the post is no sign that it is gone."""
    shop.replies["POST /posts/5/comments"] = (201, {"id": 99}, {})
    httpx.post(shop.url + "/posts/5/comments", json={"text": "spam"})
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "irreversible" and "found nothing there (GET answers 404)" in outcome.detail
    assert shop.changes() == ["POST /posts/5/comments"]


@pytest.mark.parametrize("shown", [{"id": 55, "user": 12}, [{"id": 12}]], ids=["another thing", "a list"])
def test_what_shows_as_something_else_is_not_deleted(shown: Any, recorded: Workspace, shop: Shop) -> None:
    """The answer's id is the membership's; beneath the team members go by their user's."""
    shop.replies["POST /teams/3/members"] = (201, {"id": 12}, {})
    shop.replies["GET /teams/3/members/12"] = (200, shown, {})
    httpx.post(shop.url + "/teams/3/members", json={"user": 7})
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "irreversible" and "found something else there" in outcome.detail
    assert shop.changes() == ["POST /teams/3/members"]


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "json"])
def test_what_a_server_never_shows_may_have_been_there_and_is_not_deleted(
    is_raw: bool, recorded: Workspace, journal: Journal, shop: Shop
) -> None:
    path = "/files/avatar" if is_raw else "/users/5"
    shop.raw["/files/avatar"] = ("image/png", b"the person's own")
    shop.add("/users/5", theme="the person's own")
    shop.replies[f"GET {path}"] = (404, {}, {})
    httpx.put(shop.url + path, content=b"PNG" if is_raw else b'{"theme": "dark"}')
    (effect,) = journal.effects()
    assert (effect.cls, effect.inverse) == ("irreversible", None)
    assert states(take_back(recorded)) == ["irreversible"]
    assert shop.changes() == [f"PUT {path}"]


def test_whether_an_unanswered_call_happened_is_not_told_by_a_place_that_shows_nothing(
    recorded: Workspace, shop: Shop
) -> None:
    shop.replies["GET /users/5"] = (404, {}, {})
    shop.faults["PUT"] = ["reset"]
    with pytest.raises(httpx.HTTPError):
        httpx.put(shop.url + "/users/5", json={"theme": "dark"})
    assert states(take_back(recorded)) == ["manual"]
    assert shop.things["/users/5"]["theme"] == "dark"


def test_a_delete_where_nothing_was_shown_is_named_with_the_reason(recorded: Workspace, shop: Shop) -> None:
    shop.add("/items/1", name="one")
    shop.replies["GET /items/1"] = (404, {}, {})
    httpx.delete(shop.url + "/items/1")
    (outcome,) = take_back(recorded).effects
    assert outcome.state == "irreversible" and "is not kept" in outcome.detail


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "never seen"])
def test_gone_already_is_undone_only_for_what_was_seen_once(is_seen: bool, recorded: Workspace, shop: Shop) -> None:
    shop.faults["GET"] = [] if is_seen else ["503"]
    made = httpx.post(shop.url + "/items", json={"name": "new"}).json()["id"]
    del shop.things[f"/items/{made}"]
    assert states(take_back(recorded)) == (["undone"] if is_seen else ["manual"])


def test_bytes_that_somebody_replaced_are_a_conflict_also_without_an_after_image(
    recorded: Workspace, shop: Shop
) -> None:
    shop.raw["/files/a"] = ("text/plain", b"old")
    shop.faults["GET"] = ["", "503"]  # the look before is answered, the one after is not
    httpx.put(shop.url + "/files/a", content=b"agent")
    shop.raw["/files/a"] = ("text/plain", b"a person's")
    with pytest.raises(reprieve.Conflict):
        take_back(recorded)
    assert shop.raw["/files/a"][1] == b"a person's"


@pytest.mark.parametrize(
    ("after", "reply"), [({"status": 404}, {"status": 201}), ({"status": 200}, {"status": 200})], ids=["404", "upsert"]
)
def test_a_delete_that_an_older_journal_holds_without_proof_is_not_sent(
    after: dict[str, Any], reply: dict[str, Any], ws: Workspace, journal: Journal, shop: Shop
) -> None:
    shop.add("/items/7", name="the person's own")
    url = shop.url + "/items/7"
    inverse = {
        "kind": "http",
        "method": "DELETE",
        "url": url,
        "origin": shop.url,
        "is_gone_done": True,
        "is_verified": True,
    }
    request = {"method": "POST", "url": shop.url + "/items"}
    draft = EffectDraft("http", "restorable", url, "POST /items", inverse=inverse, request=request)
    journal.record(draft, journals.place(ws), after=after, reply=reply)
    assert states(take_back(ws)) == ["failed"]
    assert shop.changes() == [] and "/items/7" in shop.things
