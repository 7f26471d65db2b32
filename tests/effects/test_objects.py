"""S3 objects: with versions exactly what was added goes, without them what was there comes back, or nothing happens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import NoCredentialsError, ParamValidationError
from moto.server import ThreadedMotoServer

from reprieve.app.effects import Side, journal_of
from reprieve.app.objects import ObjectCalls
from reprieve.app.workspace import Workspace
from reprieve.errors import Refused
from reprieve.model.plan import EffectOutcome


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in (
        ("ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("SECRET_ACCESS_KEY", "secret"),
        ("DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    client = boto3.client("s3", endpoint_url=endpoint)
    for bucket in client.list_buckets()["Buckets"]:
        versions = client.list_object_versions(Bucket=bucket["Name"])
        for each in (*versions.get("Versions", ()), *versions.get("DeleteMarkers", ())):
            client.delete_object(Bucket=bucket["Name"], Key=each["Key"], VersionId=each["VersionId"])
        client.delete_bucket(Bucket=bucket["Name"])
    client.create_bucket(Bucket="plain")
    client.create_bucket(Bucket="versioned")
    client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    for bucket in ("plain", "versioned"):
        client.put_object(Bucket=bucket, Key="old", Body=b"old", ContentType="text/x-old", Metadata={"a": "b"})
    return client


@pytest.fixture
def calls(ws: Workspace, s3: Any) -> Iterator[ObjectCalls]:
    """The agent's client is recorded from here on."""
    calls = ObjectCalls(ws, s3)
    yield calls
    calls.end()


def undo(ws: Workspace) -> list[EffectOutcome]:
    with journal_of(ws) as journal:
        side = Side(ws, journal, journal.effects(is_open=True))
        side.carry_out()
        return side.outcomes


def body(s3: Any, bucket: str, key: str) -> bytes | None:
    try:
        found: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    except s3.exceptions.NoSuchKey:
        return None
    return found


@pytest.mark.parametrize("bucket", ["plain", "versioned"])
def test_bad_case_31_each_change_has_the_right_way_back(
    ws: Workspace, s3: Any, calls: ObjectCalls, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="old", Body=b"overwritten")
    s3.put_object(Bucket=bucket, Key="new", Body=b"new")
    s3.delete_object(Bucket=bucket, Key="old")
    s3.create_bucket(Bucket="made")
    assert {outcome.state for outcome in undo(ws)} == {"undone"}
    assert body(s3, bucket, "old") == b"old" and body(s3, bucket, "new") is None
    head = s3.head_object(Bucket=bucket, Key="old")
    assert (head["ContentType"], head["Metadata"]) == ("text/x-old", {"a": "b"})
    assert "made" not in [each["Name"] for each in s3.list_buckets()["Buckets"]]
    if bucket == "versioned":
        assert len(s3.list_object_versions(Bucket=bucket)["Versions"]) == 1  # exactly what was added is gone
    assert not undo(ws)


def test_calls_of_many_threads_over_one_client_are_all_recorded(ws: Workspace, s3: Any, calls: ObjectCalls) -> None:
    """While one thread looks at what is there, the others' calls are effects all the same, and pass the gate."""
    start = threading.Barrier(6)

    def put(n: int) -> None:
        start.wait()
        s3.put_object(Bucket="plain", Key=f"t{n}", Body=b"x")

    threads = [threading.Thread(target=put, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with journal_of(ws) as journal:
        noted = {effect.resource for effect in journal.effects()}
    assert noted == {f"s3://plain/t{n}" for n in range(6)}
    assert {outcome.state for outcome in undo(ws)} == {"undone"}
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="plain")["Contents"]] == ["old"]


def test_bad_case_31_a_bucket_that_is_not_empty_stays(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str
) -> None:
    s3.create_bucket(Bucket="made")
    boto3.client("s3", endpoint_url=endpoint).put_object(Bucket="made", Key="theirs", Body=b"x")
    (outcome,) = undo(ws)
    assert outcome.state == "conflict" and "not empty" in outcome.detail
    assert body(s3, "made", "theirs") == b"x"


def test_a_bucket_that_was_there_before_is_not_deleted(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str
) -> None:
    """To make it once more is answered 200, as if it had been made."""
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="theirs")
    s3.create_bucket(Bucket="theirs")
    assert [outcome.state for outcome in undo(ws)] == ["irreversible"]
    assert "theirs" in [each["Name"] for each in s3.list_buckets()["Buckets"]]


def test_bad_case_6_what_somebody_replaced_since_is_left_alone(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str
) -> None:
    s3.put_object(Bucket="plain", Key="old", Body=b"agent")
    s3.put_object(Bucket="versioned", Key="old", Body=b"agent")
    person = boto3.client("s3", endpoint_url=endpoint)
    for bucket in ("plain", "versioned"):
        person.put_object(Bucket=bucket, Key="old", Body=b"person")
    states = {outcome.description.split("/")[2]: outcome.state for outcome in undo(ws)}
    assert states == {"plain": "conflict", "versioned": "undone"}
    assert body(s3, "plain", "old") == body(s3, "versioned", "old") == b"person"


@pytest.mark.parametrize("key", ["old", "new"])
@pytest.mark.parametrize("what", ["again", "its metadata", "its type", "its tags"])
def test_bad_case_6_the_same_bytes_of_somebody_else_are_left_alone(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str, key: str, what: str
) -> None:
    """Their ETag is the same; when they were put, their metadata, type and tags are not."""
    s3.put_object(Bucket="plain", Key=key, Body=b"same")
    person = boto3.client("s3", endpoint_url=endpoint)
    if what == "its tags":  # which changes nothing else
        person.put_object_tagging(Bucket="plain", Key=key, Tagging={"TagSet": [{"Key": "keep", "Value": "yes"}]})
    else:
        more: dict[str, Any] = {"its metadata": {"Metadata": {"by": "ann"}}, "its type": {"ContentType": "text/plain"}}
        if what == "again":
            at = person.head_object(Bucket="plain", Key=key)["LastModified"]
        person.put_object(Bucket="plain", Key=key, Body=b"same", **more.get(what, {}))
        while what == "again" and person.head_object(Bucket="plain", Key=key)["LastModified"] == at:
            person.put_object(Bucket="plain", Key=key, Body=b"same")  # a storage counts in seconds
    (outcome,) = undo(ws)
    assert outcome.state == "conflict" and "was changed since" in outcome.detail
    assert body(s3, "plain", key) == b"same"


def test_a_call_between_our_look_and_the_undo_stops_it(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reprieve.effects import objects

    s3.put_object(Bucket="plain", Key="old", Body=b"agent")
    s3.delete_object(Bucket="plain", Key="old")
    person, look = boto3.client("s3", endpoint_url=endpoint), objects._compare
    looks: list[object] = []

    def late(*given: Any) -> Any:
        looks.append(look(*given))
        if len(looks) == 3:  # after those of the preview and of the plan: the last one before it is done
            person.put_object(Bucket="plain", Key="old", Body=b"person")
        return looks[-1]

    monkeypatch.setattr(objects, "_compare", late)
    assert undo(ws)[0].state == "conflict" and len(looks) >= 3
    assert body(s3, "plain", "old") == b"person"


def _served(refuses: Callable[[dict[str, Any]], tuple[str, bytes] | None]) -> Iterator[str]:
    """The same storage at another address, where it `refuses` some requests."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    inner = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start: Any) -> Any:
        if refused := refuses(environ):
            start(refused[0], [("Content-Type", "application/xml")])
            return [b"<Error><Code>%s</Code><Message>no</Message></Error>" % refused[1]]
        return inner(environ, start)

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def simple(endpoint: str) -> Iterator[str]:
    """Knows no conditions for what is changed."""

    def refuses(environ: dict[str, Any]) -> tuple[str, bytes] | None:
        has_condition = environ.keys() & {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}
        is_change = environ["REQUEST_METHOD"] in ("PUT", "DELETE")
        return ("501 Not Implemented", b"NotImplemented") if has_condition and is_change else None

    yield from _served(refuses)


@pytest.fixture
def flaky(endpoint: str) -> Iterator[str]:
    """Does not take the first PUT."""
    seen: list[str] = []

    def refuses(environ: dict[str, Any]) -> tuple[str, bytes] | None:
        if environ["REQUEST_METHOD"] != "PUT":
            return None
        seen.append(environ["PATH_INFO"])
        return ("503 Slow Down", b"SlowDown") if len(seen) == 1 else None

    yield from _served(refuses)


def test_a_storage_that_knows_no_conditions_is_asked_without(ws: Workspace, s3: Any, simple: str) -> None:
    client = boto3.client("s3", endpoint_url=simple)
    calls = ObjectCalls(ws, client)
    client.put_object(Bucket="plain", Key="old", Body=b"agent")
    client.put_object(Bucket="plain", Key="new", Body=b"agent")
    client.delete_object(Bucket="plain", Key="old")
    calls.end()
    assert [outcome.state for outcome in undo(ws)] == ["undone"] * 3
    assert body(s3, "plain", "old") == b"old" and body(s3, "plain", "new") is None


def test_many_changes_of_one_object_are_undone_one_after_the_other(ws: Workspace, s3: Any, calls: ObjectCalls) -> None:
    """What an undo puts back was modified by that, which is nobody's change."""
    s3.put_object(Bucket="plain", Key="old", Body=b"one", Tagging="n=1")
    at = s3.head_object(Bucket="plain", Key="old")["LastModified"]
    s3.put_object(Bucket="plain", Key="old", Body=b"two", Metadata={"n": "2"})
    s3.delete_object(Bucket="plain", Key="old")
    s3.put_object(Bucket="plain", Key="old", Body=b"two", ContentType="text/plain")
    plain = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
    while plain.head_bucket(Bucket="plain") and _now(plain) <= at:  # so that the undo comes in another second
        pass
    assert [outcome.state for outcome in undo(ws)] == ["undone"] * 4
    assert body(s3, "plain", "old") == b"old"


def _now(s3: Any) -> Any:
    """What time the storage has."""
    from email.utils import parsedate_to_datetime

    return parsedate_to_datetime(s3.list_buckets()["ResponseMetadata"]["HTTPHeaders"]["date"])


@pytest.mark.parametrize("bucket", ["plain", "versioned"])
def test_what_cannot_come_back_because_its_bucket_is_gone_is_not_undone(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str, bucket: str
) -> None:
    s3.delete_object(Bucket=bucket, Key="old")
    person = boto3.client("s3", endpoint_url=endpoint)
    versions = person.list_object_versions(Bucket=bucket)
    for each in (*versions.get("Versions", ()), *versions.get("DeleteMarkers", ())):
        person.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
    person.delete_bucket(Bucket=bucket)
    (outcome,) = undo(ws)
    assert outcome.state == "failed" and "NoSuchBucket" in outcome.detail


def properties(s3: Any, key: str) -> dict[str, Any]:
    """All that can be set on an object."""
    found = s3.get_object(Bucket="plain", Key=key)
    headers = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires")
    more = ("Metadata", "StorageClass", "WebsiteRedirectLocation", "ServerSideEncryption", "SSEKMSKeyId")
    return {
        **{name: found.get(name) for name in (*headers, *more)},
        "body": found["Body"].read(),
        "tags": s3.get_object_tagging(Bucket="plain", Key=key)["TagSet"],
        "grants": sorted(map(str, s3.get_object_acl(Bucket="plain", Key=key)["Grants"])),
    }


@pytest.mark.parametrize("change", ["put_object", "delete_object"])
def test_without_versions_an_object_comes_back_with_all_its_properties(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str, change: str
) -> None:
    boto3.client("s3", endpoint_url=endpoint).put_object(
        Bucket="plain",
        Key="app.js",
        Body=b"\x1f\x8bgz",
        ContentType="text/javascript",
        ContentEncoding="gzip",
        CacheControl="no-store",
        ContentDisposition="inline",
        ContentLanguage="de",
        Expires="2031-05-06T07:08:09Z",
        WebsiteRedirectLocation="/there",
        StorageClass="STANDARD_IA",
        ServerSideEncryption="aws:kms",
        SSEKMSKeyId="arn:aws:kms:us-east-1:1:key/2",
        Tagging="owner=ann&a%20b=c%3Dd",
        Metadata={"m": "1"},
        ACL="public-read",
    )
    was = properties(s3, "app.js")
    assert len(was["tags"]) == 2 and len(was["grants"]) == 2
    getattr(s3, change)(Bucket="plain", Key="app.js", **({"Body": b"new"} if change == "put_object" else {}))
    with journal_of(ws) as journal:
        assert [effect.cls for effect in journal.effects()] == ["restorable"]
    assert [outcome.state for outcome in undo(ws)] == ["undone"]
    assert properties(s3, "app.js") == was


def test_what_of_an_object_cannot_be_put_back_is_named(
    ws: Workspace, s3: Any, calls: ObjectCalls, endpoint: str
) -> None:
    """Then it is no more than compensable, and the preview and the report say what is missing."""
    import urllib.request

    headers = {"Content-Type": "text/plain", "Expires": "0", "x-amz-meta-name": "J\xf6rg", "x-amz-meta-plain": "yes"}
    put = urllib.request.Request(f"{endpoint}/plain/odd", data=b"odd", headers=headers, method="PUT")
    with urllib.request.urlopen(put):
        s3.delete_object(Bucket="plain", Key="odd")
    with journal_of(ws) as journal:
        assert [effect.cls for effect in journal.effects()] == ["compensable"]
    (outcome,) = undo(ws)
    assert outcome.state == "undone"
    assert "not 1 of its metadata that can't be written and its Expires, which is no date" in outcome.detail
    assert body(s3, "plain", "odd") == b"odd"
    assert s3.head_object(Bucket="plain", Key="odd")["Metadata"] == {"plain": "yes"}


def test_bad_case_38_other_credentials_undo_nothing(
    ws: Workspace, s3: Any, calls: ObjectCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket="plain", Key="new", Body=b"new")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ANOTHER")
    assert undo(ws)[0].state == "failed"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    assert undo(ws)[0].state == "undone"


def test_what_has_no_way_back_is_named_and_refused_in_autopilot(ws: Workspace, s3: Any, calls: ObjectCalls) -> None:
    s3.put_bucket_tagging(Bucket="plain", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    assert undo(ws)[0].state == "irreversible"
    ws.config = ws.config.replace(policy_mode="autopilot")
    with pytest.raises(Refused, match="can't be taken back"):
        s3.delete_bucket(Bucket="plain")
    assert "plain" in [each["Name"] for each in s3.list_buckets()["Buckets"]]


def test_what_never_leaves_is_no_effect(
    ws: Workspace, s3: Any, calls: ObjectCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL to read by, a call that botocore refuses or can't sign: else they were under way for ever."""
    for name in ("get_object", "head_object"):
        s3.generate_presigned_url(name, Params={"Bucket": "plain", "Key": "signed"})
    with pytest.raises(ParamValidationError):
        s3.put_object(Bucket="plain", Key="new", Nope=1)
    with pytest.raises(ParamValidationError):
        s3.delete_object(Bucket="no bucket of this name / can be", Key="new")
    with monkeypatch.context() as without:
        without.setattr(s3._request_signer, "_credentials", None)
        with pytest.raises(NoCredentialsError):
            s3.put_object(Bucket="plain", Key="new", Body=b"new")
    with journal_of(ws) as journal:
        assert list(journal.effects()) == []
    s3.put_object(Bucket="plain", Key="new", Body=b"new")
    assert [outcome.state for outcome in undo(ws)] == ["undone"]


def _signed(s3: Any, what: str) -> object:
    at = {"Bucket": "plain", "Key": "old"}
    if what == "post":
        return s3.generate_presigned_post(**at)
    if what == "get_object":
        return s3.generate_presigned_url(what, Params=at, HttpMethod="DELETE")
    return s3.generate_presigned_url(what, Params=at if what != "delete_bucket" else {"Bucket": "plain"})


@pytest.mark.parametrize("version", ["s3", "s3v4"])
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("put_object", "PutObject s3://plain/old"),
        ("delete_object", "DeleteObject s3://plain/old"),
        ("delete_bucket", "DeleteBucket s3://plain"),
        ("get_object", "GetObject s3://plain/old"),
        ("post", "PutObject s3://plain/old"),
    ],
)
def test_a_url_by_which_somebody_may_write_is_an_effect_that_cannot_be_taken_back(
    ws: Workspace, endpoint: str, s3: Any, what: str, said: str, version: str
) -> None:
    """What is done with it is not seen; so autopilot does not sign it."""
    client = boto3.client("s3", endpoint_url=endpoint, config=Config(signature_version=version))
    calls = ObjectCalls(ws, client)
    try:
        assert _signed(client, what)
        with journal_of(ws) as journal:
            (effect,) = journal.effects()
        assert (effect.description, effect.cls, effect.state) == (f"signed a URL for {said}", "irreversible", "done")
        assert "Signature" not in str(effect)
        assert [outcome.state for outcome in undo(ws)] == ["irreversible"]
        ws.config = ws.config.replace(policy_mode="autopilot")
        with pytest.raises(Refused, match="can't be taken back"):
            _signed(client, what)
        client.put_object(Bucket="plain", Key="new", Body=b"new")
    finally:
        calls.end()


def test_a_call_that_is_sent_again_is_one_effect(ws: Workspace, s3: Any, flaky: str) -> None:
    client = boto3.client("s3", endpoint_url=flaky)
    calls = ObjectCalls(ws, client)
    client.put_object(Bucket="plain", Key="new", Body=b"new")
    calls.end()
    with journal_of(ws) as journal:
        assert [effect.state for effect in journal.effects()] == ["done"]


def test_an_error_without_an_answer_leaves_it_unknown(ws: Workspace, s3: Any, endpoint: str) -> None:
    client = boto3.client("s3", endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1}))
    calls = ObjectCalls(ws, client)

    def cut(request: Any, **_: object) -> None:
        if request.method == "PUT":
            raise ConnectionError("cut off")

    client.meta.events.register("before-send.s3", cut)
    with pytest.raises(ConnectionError):
        client.put_object(Bucket="plain", Key="new", Body=b"new")
    calls.end()
    with journal_of(ws) as journal:
        assert [effect.state for effect in journal.effects()] == ["unknown"]


def test_no_credential_is_in_the_journal(ws: Workspace, s3: Any, calls: ObjectCalls) -> None:
    s3.put_object(Bucket="plain", Key="new", Body=b"new")
    with open(f"{ws.home}/effects.db", "rb") as file:
        assert b"AKIDEXAMPLE" not in file.read()
