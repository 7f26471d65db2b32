"""Undo changes of S3 objects and buckets, through boto3: signed requests can't be replayed, so they are made anew.

    inverse = {"kind": "objects", "endpoint": ..., "region": ..., "account": keyed fingerprint of the access key,
               "bucket", "key", "way": "bucket" | "version" | "marker" | "delete" | "put",
               "version": id,                                    of what the effect made, where the bucket has versions
               "etag": of what it left,                          where it has none: compared before anything is done,
               "left": {"modified", "metadata", "type", "tags"}, with what tells it from others of the same bytes
                                                                 ({}: could not be seen; missing: in older journals)
               "before": etag, "was": when it was modified,      of what was there before ("": nothing)
               "body": base64, "metadata": {...}, "type": ...,   what was there before,
               "more": {argument of put_object: value},          with its other headers, tags and grants
               "lost": ["its tags", ...]}                        what of it can't be put back

`version` and `marker` take away exactly what the effect added, whatever came later. What is put back is modified anew:
the effects before it find that by a name that was changed (`names`). Needs `pip install reprieve[s3]`.
"""

from __future__ import annotations

import base64
from typing import cast

from reprieve.effects.driver import ALREADY, CHANGED, READY, UNCLEAR, Check, Outcome
from reprieve.errors import Misconfigured, Refused
from reprieve.model.effect import CONFLICT, FAILED, MANUAL, UNDONE, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from reprieve.model.effect import Effect

BUCKET, VERSION, MARKER, DELETE, PUT = "bucket", "version", "marker", "delete", "put"
_SAYS = {
    BUCKET: "delete the bucket {bucket}, if it is empty",
    VERSION: "delete version {version} of {key} in {bucket}",
    MARKER: "delete the delete marker {version} of {key} in {bucket}",
    DELETE: "delete {key} in {bucket}, if nobody replaced it since",
    PUT: "put {key} in {bucket} back as it was, if nobody replaced it since",
}
_UNSEEN = "what the call left could not be seen then, so nobody can tell whether it was changed since"
# storages that do not know conditions refuse or ignore them; the comparison just before is all there is then
_NO_CONDITIONS = ("NotImplemented", "XNotImplemented", "UnsupportedOperation", "501")
_GONE = ("404", "NoSuchKey", "NoSuchBucket", "NoSuchVersion", "NotFound")


class ObjectsDriver:
    """Takes objects back."""

    def __init__(self, *, sign: Callable[[bytes], str]) -> None:
        self._sign = sign

    def says(self, effect: Effect) -> str:
        inverse = effect.inverse or {}
        said = _SAYS[str(inverse["way"])].format(**{k: str(v) for k, v in inverse.items()})
        lost = inverse.get("lost")
        return f"{said}; not {' and '.join(map(str, lost))}" if isinstance(lost, list) and lost else said

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        inverse = effect.inverse or {}
        way = inverse["way"]
        try:
            client = self._client(inverse)
            if way in (VERSION, MARKER):
                return Check(READY)
            if way == BUCKET:
                found = client.list_objects_v2(Bucket=inverse["bucket"], MaxKeys=1)
                return Check(CHANGED, "the bucket is not empty") if found.get("KeyCount") else Check(READY)
            return _compare(client, inverse, names)
        except (Refused, Misconfigured) as e:
            return Check(UNCLEAR, e.message)
        except _errors() as e:
            if way == BUCKET and _code(e) in _GONE:
                return Check(ALREADY, "the bucket is gone already")
            return Check(UNCLEAR, f"the storage refuses: {e}")

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        inverse = effect.inverse or {}
        where, way = {"Bucket": inverse["bucket"], "Key": inverse["key"]}, inverse["way"]
        try:
            client = self._client(inverse)
            if way == BUCKET:
                client.delete_bucket(Bucket=inverse["bucket"])
            elif way in (VERSION, MARKER):
                client.delete_object(**where, VersionId=inverse["version"])
            elif way == DELETE:
                _if_same(client, "DeleteObject", inverse, where)
            else:
                body = base64.b64decode(str(inverse["body"]))
                more = cast("dict[str, object]", inverse.get("more") or {})
                whole = {"Body": body, "Metadata": inverse["metadata"], "ContentType": inverse["type"], **more}
                _if_same(client, "PutObject", inverse, {**where, **whole})
        except (Refused, Misconfigured) as e:
            return Outcome(FAILED, e.message)
        except _errors() as e:
            code = _code(e)
            if code in _GONE and way not in (MARKER, PUT):  # those bring something back: it is not there
                return Outcome(UNDONE, "it was gone already")
            if code in ("BucketNotEmpty", "PreconditionFailed", "ConditionalRequestConflict", "409", "412"):
                return Outcome(CONFLICT, f"{code}: somebody changed it since")
            if not code:
                return Outcome(MANUAL, f"whether it was done is not known: {e}")
            return Outcome(FAILED, f"the storage refuses: {e}")
        renamed = _renamed(client, inverse) if way == PUT and inverse.get("was") else None
        return Outcome(UNDONE, self.says(effect), renamed=renamed)

    def resolve(self, effect: Effect) -> str:
        return UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        """Each way leads to the same state however often it is gone, and is compared before."""
        return True

    def _client(self, inverse: Mapping[str, object]) -> Any:
        client = client_for(str(inverse["endpoint"]), str(inverse["region"]))
        if account(client, self._sign) != inverse["account"]:
            raise Refused("the credentials are not those that the effect was made with; nothing was sent")
        return client


def seen(client: Any, bucket: object, key: object) -> dict[str, object]:
    """What is there, with what tells it from another of the same bytes; {} if nothing is."""
    where = {"Bucket": bucket, "Key": key}
    try:
        head = client.head_object(**where)
    except _errors() as e:
        if _code(e) not in _GONE:
            raise
        return {}
    found: dict[str, object] = {
        "etag": str(head["ETag"]),
        "modified": head["LastModified"].isoformat(),
        "metadata": head.get("Metadata", {}),
        "type": head.get("ContentType", ""),
    }
    try:
        tags = client.get_object_tagging(**where)["TagSet"]
    except client.exceptions.ClientError:
        return found  # not every storage has them, and not everybody may see them
    return {**found, "tags": sorted(f"{tag['Key']}={tag['Value']}" for tag in tags)}


def left_by(client: Any, bucket: str, key: str, etag: str) -> dict[str, object]:
    """`left` of an inverse, right after the call; {} if it can't be seen, or is another's already."""
    try:
        found = seen(client, bucket, key)
    except _errors():
        return {}
    return {name: value for name, value in found.items() if name != "etag"} if found.get("etag") == etag else {}


def _compare(client: Any, inverse: Mapping[str, object], names: Mapping[str, str]) -> Check:
    """Where there are no versions: it must still be what the effect left."""
    now = seen(client, inverse["bucket"], inverse["key"])
    etag, before = now.get("etag", ""), inverse.get("before", "")
    if not now and not before:
        return Check(ALREADY, "it is as it was already")
    if etag == inverse["etag"]:
        left = inverse.get("left")
        if not now or not isinstance(left, dict) or (left and _is_same(now, left, inverse, names)):
            return Check(READY)
        if not left:
            return Check(UNCLEAR, _UNSEEN)
    if etag == before and now.get("metadata") == inverse.get("metadata") and now.get("type") == inverse.get("type"):
        return Check(ALREADY, "it is as it was already")
    return Check(CHANGED, f"{inverse['key']} was changed since")


def _is_same(
    now: Mapping[str, object], left: Mapping[str, object], inverse: Mapping[str, object], names: Mapping[str, str]
) -> bool:
    """Whether it is the one that the effect left, or that one as a later undo has put it back."""
    name = _name(inverse, left["modified"])
    known = {name}
    while name in names and names[name] not in known:
        name = names[name]
        known.add(name)
    facts = ("metadata", "type", *(("tags",) if "tags" in left and "tags" in now else ()))
    return _name(inverse, now["modified"]) in known and all(now[fact] == left[fact] for fact in facts)


def _renamed(client: Any, inverse: Mapping[str, object]) -> tuple[str, str] | None:
    """What was put back is another object for the storage, and the same one for us."""
    try:
        now = seen(client, inverse["bucket"], inverse["key"])
    except _errors():
        return None  # then what is older on it is a conflict
    old, new = _name(inverse, inverse["was"]), _name(inverse, now.get("modified"))
    return (old, new) if now and old != new else None


def _name(inverse: Mapping[str, object], modified: object) -> str:
    return f"s3://{inverse['bucket']}/{inverse['key']} of {modified}"


def _if_same(client: Any, operation: str, inverse: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Do it on the condition that nobody came between our look and this, where the storage knows conditions."""
    condition = {"IfMatch": inverse["etag"]} if inverse["etag"] else {"IfNoneMatch": "*"}
    known = client.meta.service_model.operation_model(operation).input_shape.members
    call = client.put_object if operation == "PutObject" else client.delete_object
    if not set(condition) <= set(known):
        call(**given)
        return
    try:
        call(**given, **condition)
    except client.exceptions.ClientError as e:
        if _code(e) not in _NO_CONDITIONS:
            raise
        call(**given)


def client_for(endpoint: str, region: str) -> Any:
    """A client with the credentials that boto3 finds."""
    try:
        import boto3
    except ImportError:
        raise Misconfigured("objects need boto3", hints=["pip install 'reprieve[s3]'"]) from None
    # a session of its own: the default one remembers the credentials of whoever came first
    return boto3.session.Session().client("s3", endpoint_url=endpoint or None, region_name=region or None)


def account(client: Any, sign: Callable[[bytes], str]) -> str:
    """Whose credentials a client has, as a keyed fingerprint."""
    found = client._request_signer._credentials  # boto3 offers no public way to ask
    return sign(str(found.access_key).encode()) if found is not None else ""


def _errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError

    return (BotoCoreError, ClientError)


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str(response["Error"]["Code"]) if isinstance(response, dict) and "Error" in response else ""
