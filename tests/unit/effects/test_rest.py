"""What undoes an HTTP call by REST convention: read off requests, before-images and answers, without a network."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from reprieve.app.http_calls import hidden
from reprieve.effects import calls, rest
from reprieve.effects.calls import Call
from reprieve.effects.rest import Outlook, Verdict
from reprieve.effects.wire import Answer

SITE = "https://api.example.com"


def call(method: str, path: str, body: Any = None, **headers: str) -> Call:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call(method, SITE + path, tuple((k.replace("_", "-"), v) for k, v in headers.items()), data)


def says(status: int, body: Any = None, **headers: str) -> Answer:
    data = b"" if body is None else json.dumps(body).encode()
    return Answer(status, tuple((k.replace("_", "-"), v) for k, v in headers.items()), data)


def expect(asked: Call, before: Answer | None = None) -> Outlook:
    return rest.outlook(asked, before, None, hidden)


def judge(asked: Call, answer: Answer, before: Answer | None = None) -> Verdict:
    return rest.verdict(asked, before, answer, expect(asked, before), hidden)


def undo(found: Outlook | Verdict) -> tuple[object, object]:
    assert found.inverse is not None, found.why
    return found.inverse["method"], str(found.inverse["url"]).removeprefix(SITE)


# -- POST


@pytest.mark.parametrize(
    "answer",
    [
        says(201, {"id": 7}),
        says(201, {}, Location="/items/7"),
        says(201, {}, Location=SITE + "/items/7"),
        says(201, {"data": {"id": 7}}),
    ],
    ids=["id", "location", "absolute location", "in an envelope"],
)
def test_what_a_post_to_a_collection_made_is_deleted(answer: Answer) -> None:
    verdict = judge(call("POST", "/items", {"a": 1}), answer)
    assert undo(verdict) == ("DELETE", "/items/7")
    assert (verdict.cls, verdict.resource, verdict.look) == ("restorable", SITE + "/items/7", SITE + "/items/7")


@pytest.mark.parametrize(
    "answer",
    [says(200, {"id": "7"}), says(200, {}, Location="/items/7"), says(303, None, Location="/items/7")],
    ids=["id", "location", "see other"],
)
def test_what_is_not_said_to_be_new_may_have_been_there_before_and_is_never_deleted(answer: Answer) -> None:
    verdict = judge(call("POST", "/items", {"a": 1}), answer)
    assert (verdict.cls, verdict.inverse) == ("irreversible", None)
    assert verdict.why == "nothing says that something was made"


def test_an_id_from_the_answer_is_one_segment_whatever_it_holds() -> None:
    """A server that answers "../users/1" does not choose what is deleted."""
    assert undo(judge(call("POST", "/items", {}), says(201, {"id": "../users/1"}))) == (
        "DELETE",
        "/items/..%2Fusers%2F1",
    )


def test_bad_case_24_a_post_whose_answer_has_the_id_of_its_url_is_an_update_and_never_deleted() -> None:
    asked, was = (
        call("POST", "/customers/cus_1234", {"name": "new"}),
        says(200, {"id": "cus_1234", "name": "old", "x": 1}),
    )
    for status in (200, 201):  # some servers answer 201 to every POST
        verdict = judge(asked, says(status, {"id": "cus_1234", "name": "new"}), was)
        assert undo(verdict) == ("POST", "/customers/cus_1234")
        assert verdict.inverse is not None and verdict.inverse["json"] == {"name": "old"}
    assert judge(asked, says(200, {"id": "cus_1234"}), None).inverse is None
    assert judge(call("POST", "/users", {}), says(200, {"id": "users"})).inverse is None


def test_bad_case_24_an_update_by_form_is_put_back_as_a_form() -> None:
    asked = call(
        "POST", "/v1/customers/cus_1234", b"name=new&limit=5", content_type="application/x-www-form-urlencoded"
    )
    found = expect(asked, says(200, {"id": "cus_1234", "name": "old", "limit": 3}))
    assert found.inverse is not None and found.inverse["form"] == {"name": "old", "limit": "3"}


def test_bad_case_24_a_post_that_writes_over_an_id_of_the_callers_is_an_update() -> None:
    asked = call("POST", "/items", {"id": "abc", "name": "new"})
    assert rest.first_look(asked, None) == SITE + "/items/abc"
    assert undo(expect(asked, says(200, {"id": "abc", "name": "old"}))) == ("PUT", "/items/abc")
    assert undo(expect(asked, says(404))) == ("DELETE", "/items/abc")


def test_bad_case_27_a_location_at_another_origin_is_refused() -> None:
    for location in ("https://evil.example/items/7", "http://169.254.169.254/latest", "http://api.example.com/items/7"):
        verdict = judge(call("POST", "/items", {}), says(201, {"id": 7}, Location=location))
        assert (verdict.inverse, verdict.cls) == (None, "irreversible")
        assert "undone where it was done" in verdict.why


def test_an_answer_that_points_back_or_names_nothing_gives_no_inverse() -> None:
    asked = call("POST", "/items", {"a": 1})
    for answer in (
        says(201, {}, Location="/items"),
        says(200, {"ok": True}),
        says(204),
        says(303, None, Location="/done"),
    ):
        assert judge(asked, answer).inverse is None


@pytest.mark.parametrize(
    "path", ["/v1/charges", "/messages", "/users/5/invites", "/hooks", "/api/chat.postMessage", "/pay/send"]
)
def test_what_others_see_or_pay_for_is_irreversible_without_a_rule(path: str) -> None:
    found = expect(call("POST", path, {}))
    assert found.cls == "irreversible" and found.why


def test_what_a_post_to_no_collection_does_is_asked_and_else_irreversible() -> None:
    asked = call("POST", "/items/7/activate", {})
    assert rest.first_look(asked, None) == asked.url
    for before in (None, says(404), says(405), says(200, {"id": 9})):
        assert expect(asked, before).cls == "irreversible"
    assert expect(call("POST", "/data", {}), says(200, [{"id": 1}])).cls == "restorable"


def test_bad_case_41_batches_are_irreversible_with_the_reason() -> None:
    assert "batch" in expect(call("POST", "/items", [{}, {}])).why
    verdict = judge(call("POST", "/items", {}), says(207, {"items": []}))
    assert verdict.inverse is None and "batch" in verdict.why


def test_bad_case_40_an_accepted_operation_is_unknown_until_it_says_how_it_ended() -> None:
    asked, answer = call("POST", "/clusters", {}), says(202, {}, Operation_Location="/operations/5")
    assert rest.outcome(answer, None, asked)[0] == "unknown"
    assert rest.later(asked, answer) == {"url": SITE + "/operations/5", "is_operation": True}
    assert rest.later(asked, says(202, {}, Location="https://other.example/op")) is None


# -- PUT, PATCH, DELETE


def test_put_and_patch_put_the_before_image_back() -> None:
    was = says(200, {"id": 1, "a": "old", "b": 2})
    assert undo(expect(call("PUT", "/items/1", {"a": "new"}), was)) == ("PUT", "/items/1")
    patched = expect(call("PATCH", "/items/1", {"a": "new"}), was)
    assert patched.inverse is not None and patched.inverse["json"] == {"a": "old"}
    assert (patched.cls, undo(patched)) == ("reversible", ("PATCH", "/items/1"))


def test_bad_case_26_a_patch_that_added_a_key_is_undone_by_a_full_put() -> None:
    found = expect(call("PATCH", "/items/1", {"new": 1}), says(200, {"id": 1, "a": "old"}))
    assert found.inverse is not None and found.inverse["json"] == {"id": 1, "a": "old"}
    assert undo(found) == ("PUT", "/items/1")


def test_a_merge_patch_is_undone_by_one_with_null_for_what_it_added() -> None:
    was = {"id": 1, "a": {"x": 1, "y": {"z": 2}}, "b": [1], "c": {"d": 1}}
    sent = {"a": {"y": {"new": 1}, "x": None}, "b": [2], "c": 5, "e": {"f": 1}}
    found = expect(call("PATCH", "/items/1", sent, content_type="application/merge-patch+json"), says(200, was))
    assert found.inverse is not None and undo(found) == ("PATCH", "/items/1")
    assert found.inverse["json"] == {"a": {"y": {"new": None}, "x": 1}, "b": [1], "c": {"d": 1}, "e": None}
    assert found.inverse["type"] == "application/merge-patch+json"


def test_what_was_not_there_before_is_deleted() -> None:
    for method in ("PUT", "PATCH"):
        assert undo(expect(call(method, "/items/1", {"a": 1}), says(404))) == ("DELETE", "/items/1")


def test_what_was_deleted_is_put_back_where_it_was_or_made_anew() -> None:
    found = expect(call("DELETE", "/items/1"), says(200, {"id": 1, "a": "x", "created_at": "2026"}))
    assert found.inverse is not None and undo(found) == ("PUT", "/items/1")
    assert found.inverse["check"] == {"url": SITE + "/items/1", "absent": True}
    assert found.inverse["make"] == {"url": SITE + "/items", "json": {"a": "x"}}


@pytest.mark.parametrize("status", [0, 401, 403, 405, 500])
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_without_a_before_image_there_is_no_way_back(method: str, status: int) -> None:
    found = expect(call(method, "/items/1", {"a": 1}), says(status))
    assert (found.cls, found.inverse) == ("irreversible", None) and found.why


def test_a_collection_or_a_thing_with_parts_of_its_own_does_not_come_back() -> None:
    for was in ([{"id": 1}], {"items": []}, {"id": 1, "issues_url": "…"}, {"id": 1, "member_count": 3}):
        assert expect(call("DELETE", "/repos/1"), says(200, was)).cls == "irreversible"


@pytest.mark.parametrize(
    "was",
    [{"id": 1, "key": "****1234"}, {"id": 1, "deep": [{"pin": "••••"}]}, {"id": 1, "note": "[REDACTED]"}],
)
def test_bad_case_39_a_masked_field_is_never_written_back(was: dict[str, Any]) -> None:
    for method in ("PUT", "DELETE"):
        found = expect(call(method, "/items/1", {"a": 1}), says(200, was))
        assert (found.cls, found.inverse) == ("irreversible", None) and "masked" in found.why


def test_bad_case_39_a_field_that_is_never_shown_is_not_lost_silently() -> None:
    found = expect(call("PUT", "/users/1", {"name": "n", "password": "new"}), says(200, {"id": 1, "name": "o"}))
    assert found.inverse is None and "password" in found.why
    inside = expect(call("PATCH", "/users/1", {"login": {"password": "new"}}), says(200, {"id": 1, "login": {}}))
    assert inside.inverse is None and "login.password" in inside.why
    part = expect(call("PATCH", "/users/1", {"name": "n"}), says(200, {"id": 1, "name": "o", "key": "****"}))
    assert part.inverse is not None and part.inverse["json"] == {"name": "o"}


def test_bad_case_29_a_secret_in_a_before_image_is_not_kept_so_it_is_irreversible() -> None:
    found = expect(call("DELETE", "/items/1"), says(200, {"id": 1, "api_key": "very-secret-value"}))
    assert found.inverse is None and "very-secret-value" not in repr(found)


def test_a_body_that_is_no_json_comes_back_byte_for_byte() -> None:
    before = Answer(200, (("Content-Type", "image/png"),), b"\x89PNG\xff")
    found = expect(call("PUT", "/files/a", b"new"), before)
    assert found.inverse is not None and found.inverse["base64"] and found.inverse["type"] == "image/png"
    assert expect(call("PATCH", "/files/a", b"new"), before).cls == "irreversible"


def test_until_there_is_an_after_image_an_undo_must_find_what_was_sent() -> None:
    """A process that ends before its look after the call leaves no after-image."""
    for before in (says(404), Answer(200, (("Content-Type", "image/png"),), b"\x89PNG")):
        raw = expect(call("PUT", "/files/a", b"new"), before).inverse
        assert raw is not None and raw["check"] == {"url": SITE + "/files/a", "sha256": sha256(b"new").hexdigest()}
    patch = expect(call("PATCH", "/items/1", [{"op": "add", "path": "/a", "value": 1}]), says(404)).inverse
    assert patch is not None and patch["check"] == {"url": SITE + "/items/1"}


def test_methods_that_nobody_knows_are_irreversible() -> None:
    assert expect(call("MOVE", "/a")).cls == "irreversible"
    assert expect(call("GET", "/ws", upgrade="websocket")).cls == "opaque"


# -- looks


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("GET", "/items", None),
        ("HEAD", "/items", None),
        ("POST", "/index/_search", {"query": {}}),
        ("POST", "/repo.git/git-upload-pack", b"x"),
        ("POST", "/oauth2/token", b"grant_type=x"),
        ("POST", "/graphql", {"query": "query { me { name } }"}),
        ("POST", "/graphql", {"query": '{ find(text: "mutation { drop }") { id } } # mutation'}),
        ("POST", "/rpc", {"jsonrpc": "2.0", "method": "items.list", "id": 1}),
    ],
)
def test_questions_are_no_effects(method: str, url: str, body: Any) -> None:
    assert calls.is_look(call(method, url, body))


def test_a_model_that_is_asked_is_no_effect() -> None:
    assert calls.is_look(Call("POST", "https://api.openai.com/v1/chat/completions"))
    assert not calls.is_look(Call("POST", "https://api.openai.com/v1/files"))
    assert not calls.is_look(Call("POST", "https://evil.example/api.openai.com/v1/chat/completions"))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (
            "mutation { issueCreate(input: {title: $t}) { id } other: issueArchive(id: 1) { ok } }",
            "issueCreate, issueArchive",
        ),
        ("query A { me { id } } mutation B { drop { ok } }", "drop"),
        (None, "not told"),
    ],
)
def test_bad_case_42_a_graphql_mutation_is_an_effect_and_named_by_its_fields(query: str | None, names: str) -> None:
    asked = call("POST", "/graphql", {"query": query} if query else {"id": "stored"})
    assert not calls.is_look(asked)
    found = expect(asked)
    assert found.cls == "irreversible" and f"({names})" in found.why


# -- outcomes and fingerprints


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (says(200), "done"),
        (says(201), "done"),
        (says(303), "done"),
        (says(400), "refused"),
        (says(409), "refused"),
        (says(429), "refused"),
        (says(308), "refused"),
        (says(408), "unknown"),
        (says(500), "unknown"),
        (says(503), "unknown"),
        (Answer(0, detail="reset"), "unknown"),
        (Answer(0, detail="no route", is_unsent=True), "refused"),
    ],
)
def test_E01_what_may_have_happened_is_never_taken_for_not_done(answer: Answer, state: str) -> None:
    assert rest.outcome(answer, None, call("POST", "/items"))[0] == state
    rule = rest.Rule("x", "compensable", unknown=(409,))
    assert rest.outcome(says(409), rule, call("POST", "/items"))[0] == "unknown"


def test_bad_case_46_a_fingerprint_does_not_see_fresh_ids_and_times() -> None:
    def of(body: Any, path: str = "/charges") -> str:
        return calls.fingerprint(call("POST", path, body), lambda data: data.hex())

    once = of(
        {"amount": 5, "key": "0d9f3c1e-9b4e-4d6a-8f1b-000000000001", "timestamp": 1, "when": "2026-01-01T10:00:00Z"}
    )
    again = of(
        {"when": "2026-01-02T11:00:00Z", "amount": 5, "key": "0d9f3c1e-9b4e-4d6a-8f1b-000000000002", "timestamp": 2}
    )
    assert once == again != of({"amount": 6, "key": "", "when": ""})
    assert of({"a": 1}) != of({"a": 1}, "/charges/2")
