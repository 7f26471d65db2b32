"""Undo changes of S3 objects and buckets, through boto3: signed requests can't be replayed, so they are made anew.

    inverse = {"kind": "objects", "endpoint": ..., "region": ..., "account": keyed fingerprint of the access key,
               "bucket", "key", "way": "bucket" | "version" | "marker" | "delete" | "put",
               "version": id,                                    of what the effect made, where the bucket has versions
               "etag": of what it left,                          where it has none: compared before anything is done
               "body": base64, "metadata": {...}, "type": ...,   what was there before,
               "more": {argument of put_object: value},          with its other headers, tags and grants
               "lost": ["its tags", ...]}                        what of it can't be put back

`version` and `marker` take away exactly what the effect added, whatever came later. Needs `pip install reprieve[s3]`.
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
            return self._compare(client, inverse)
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
                client.delete_object(**where)
            else:
                body = base64.b64decode(str(inverse["body"]))
                more = cast("dict[str, object]", inverse.get("more") or {})
                client.put_object(**where, Body=body, Metadata=inverse["metadata"], ContentType=inverse["type"], **more)
        except (Refused, Misconfigured) as e:
            return Outcome(FAILED, e.message)
        except _errors() as e:
            code = _code(e)
            if code in _GONE and way not in (MARKER, PUT):  # those bring something back: it is not there
                return Outcome(UNDONE, "it was gone already")
            if code in ("BucketNotEmpty", "PreconditionFailed", "409", "412"):
                return Outcome(CONFLICT, f"{code}: somebody changed it since")
            if not code:
                return Outcome(MANUAL, f"whether it was done is not known: {e}")
            return Outcome(FAILED, f"the storage refuses: {e}")
        return Outcome(UNDONE, self.says(effect))

    def resolve(self, effect: Effect) -> str:
        return UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        """Each way leads to the same state however often it is gone, and is compared before."""
        return True

    def _compare(self, client: Any, inverse: Mapping[str, object]) -> Check:
        """Where there are no versions: it must still be what the effect left."""
        try:
            now = str(client.head_object(Bucket=inverse["bucket"], Key=inverse["key"])["ETag"])
        except _errors() as e:
            if _code(e) not in _GONE:
                raise
            now = ""
        if now == inverse["etag"]:
            return Check(READY)
        if now == inverse.get("before", ""):
            return Check(ALREADY, "it is as it was already")
        return Check(CHANGED, f"{inverse['key']} was changed since")

    def _client(self, inverse: Mapping[str, object]) -> Any:
        client = client_for(str(inverse["endpoint"]), str(inverse["region"]))
        if account(client, self._sign) != inverse["account"]:
            raise Refused("the credentials are not those that the effect was made with; nothing was sent")
        return client


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
