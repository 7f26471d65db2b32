"""Record what a boto3 client does to S3: before a call what is there, after it the way back."""

from __future__ import annotations

import base64

from reprieve.app import journals
from reprieve.app.object_image import properties
from reprieve.effects.objects import BUCKET, DELETE, MARKER, PUT, VERSION, account, left_by
from reprieve.errors import Refused
from reprieve.model.effect import (
    COMPENSABLE,
    DONE,
    IRREVERSIBLE,
    REFUSED,
    RESTORABLE,
    REVERSIBLE,
    UNKNOWN,
    EffectDraft,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from reprieve.app.workspace import Workspace
    from reprieve.model.effect import Json

_READS = ("Get", "List", "Head", "Select")
_LARGEST = 1 << 20  # bytes of an object that are kept in the journal; a larger one is not put back
_KNOWN = ("CreateBucket", "PutObject", "DeleteObject")
_SIGNED = "reprieve_signed"  # in the context of what is only signed
_WANTED, _MINE = "reprieve_wanted", "reprieve"  # in a call's context: before and after its intent is durable


class ObjectCalls:
    """Stands behind a client; `end` lets it go."""

    def __init__(self, ws: Workspace, client: Any) -> None:
        self._ws, self._client, self._journal = ws, client, journals.open_journal(ws)
        self._handlers = {
            "before-parameter-build.s3": self._before,
            "before-sign.s3": self._signing,
            "request-created.s3": self._leaving,
            "after-call.s3": self._after,
            "after-call-error.s3": self._failed,
        }
        for event, handler in self._handlers.items():
            client.meta.events.register_last(event, handler)

    def end(self) -> None:
        for event, handler in self._handlers.items():
            self._client.meta.events.unregister(event, handler)
        self._journal.log.close()

    def _before(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: object) -> None:
        """What is asked for. It may be signed and given to somebody, or refused by botocore, and never leave."""
        bucket, key = str(params.get("Bucket", "")), str(params.get("Key", ""))
        if context.get("is_presign_request"):
            context[_SIGNED] = (bucket, key)
            return
        if model.name.startswith(_READS):
            return  # our own looks, too
        is_known = model.name in _KNOWN and "VersionId" not in params
        if not is_known:
            self._gate(model.name, bucket, key, "")
        context[_WANTED] = (model.name, bucket, key, is_known)

    def _signing(self, request: Any, operation_name: str, **_: object) -> None:
        """A URL or form that lets whoever has it write: that is not seen, and can't be taken back."""
        bucket, key = request.context.pop(_SIGNED, (None, ""))
        if bucket is None:
            return  # a call, which leaves by itself
        # a program may sign another method than that of the operation
        if operation_name.startswith(_READS) and request.method in ("GET", "HEAD"):
            return
        key = str(request.context.get("s3-presign-post-fields", {}).get("key", key))
        self._gate(f"a signed URL for {operation_name}", bucket, key, "")
        where = f"s3://{bucket}/{key}" if key else f"s3://{bucket}"
        draft = EffectDraft(
            "objects",
            IRREVERSIBLE,
            where,
            f"signed a URL for {operation_name} {where}",
            request={"operation": operation_name, "why_not": "what is done with it is not seen"},
        )
        effect = self._journal.begin(draft, journals.place(self._ws), is_fork=True)
        self._journal.finish(effect.id, DONE, detail="what is done with it is not seen")

    def _leaving(self, request: Any, **_: object) -> None:
        """It is signed and about to leave, for the first time or once more; from here on an answer or error comes."""
        wanted = request.context.pop(_WANTED, None)
        if wanted is not None:
            request.context[_MINE] = self._begin(*wanted)

    def _gate(self, name: str, bucket: str, key: str, why: str) -> None:
        if self._ws.config.policy_mode == "autopilot":
            raise Refused(
                f"{name} of {bucket}/{key} can't be taken back; autopilot does not do that",
                hints=[why] if why else [],
                data={"class": IRREVERSIBLE},
            )

    def _begin(self, name: str, bucket: str, key: str, known: bool) -> tuple[str, str, str, str, Json, bool]:
        before, why = self._image(bucket, key) if known and key else ({}, "")
        if name == "CreateBucket":
            why = self._why_not_new(bucket)
        cls = REVERSIBLE if name == "CreateBucket" else COMPENSABLE if before.get("lost") else RESTORABLE
        if not known or why:
            cls = IRREVERSIBLE
            self._gate(name, bucket, key, why)
        where = f"s3://{bucket}/{key}" if key else f"s3://{bucket}"
        draft = EffectDraft(
            "objects",
            cls,
            where,
            f"{name} {where}",
            (f"s3://{bucket}",) if key else (),
            request={"operation": name, "why_not": why},
            before={k: v for k, v in before.items() if k != "body"},
        )
        effect = self._journal.begin(draft, journals.place(self._ws), is_fork=True)
        return effect.id, name, bucket, key, before, known and not why

    def _why_not_new(self, bucket: str) -> str:
        """Why a bucket that is to be made is not the agent's to delete: where it is there, some regions answer 200."""
        try:
            self._client.head_bucket(Bucket=bucket)
        except self._client.exceptions.ClientError as e:
            is_new = e.response["Error"]["Code"] in ("404", "NoSuchBucket", "NotFound")
            return "" if is_new else f"whether the bucket was there before can't be told: {e}"
        return "the bucket was there before"

    def _image(self, bucket: str, key: str) -> tuple[Json, str]:
        """What is there now ({}: nothing), and why it can't be put back."""
        try:
            return self._seen(bucket, key)
        except self._client.exceptions.ClientError as e:
            return {}, f"what is there could not be read: {e}"

    def _seen(self, bucket: str, key: str) -> tuple[Json, str]:
        versions = self._client.get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled"
        try:
            head = self._client.head_object(Bucket=bucket, Key=key)
        except self._client.exceptions.ClientError as e:
            if e.response["Error"]["Code"] in ("404", "NoSuchKey", "NotFound"):
                return {"versions": versions}, ""
            raise
        image: Json = {
            "versions": versions,
            "etag": head["ETag"],
            "modified": head["LastModified"].isoformat(),
            "metadata": head.get("Metadata", {}),
            "type": head.get("ContentType", "binary/octet-stream"),
        }
        if versions:
            return image, ""
        if head["ContentLength"] > _LARGEST:
            return image, f"it is larger than {_LARGEST:,} bytes, and its bucket keeps no versions"
        found = self._client.get_object(Bucket=bucket, Key=key, IfMatch=head["ETag"])
        image["body"] = base64.b64encode(found["Body"].read()).decode()
        return {**image, **properties(self._client, bucket, key, found)}, ""

    def _after(self, http_response: Any, parsed: dict[str, Any], context: dict[str, Any], **_: object) -> None:
        noted = context.pop(_MINE, None)
        if noted is None:
            return
        id, name, bucket, key, before, can_undo = noted
        status = http_response.status_code
        if status >= 500:
            self._journal.finish(id, UNKNOWN, detail=f"answered {status}")
        elif status >= 300:
            self._journal.finish(id, REFUSED, detail=f"answered {status}")
        else:
            inverse = self._inverse(name, bucket, key, before, parsed) if can_undo else None
            self._journal.finish(id, DONE, inverse=inverse, cls=None if inverse else IRREVERSIBLE)

    def _failed(self, exception: Exception, context: dict[str, Any], **_: object) -> None:
        noted = context.pop(_MINE, None)
        if noted is not None:
            self._journal.finish(noted[0], UNKNOWN, detail=f"no answer came: {exception}")

    def _inverse(self, name: str, bucket: str, key: str, before: Json, parsed: dict[str, Any]) -> Json:
        inverse: Json = {
            "kind": "objects",
            "endpoint": self._client.meta.endpoint_url,
            "region": self._client.meta.region_name,
            "account": account(self._client, self._journal.log.fingerprint),
            "bucket": bucket,
            "key": key,
        }
        if name == "CreateBucket":
            return {**inverse, "way": BUCKET}
        version = parsed.get("VersionId")
        if before.get("versions") and version:
            return {**inverse, "way": MARKER if name == "DeleteObject" else VERSION, "version": version}
        etag = parsed.get("ETag", "") if name == "PutObject" else ""
        left = {"etag": etag, **({"left": left_by(self._client, bucket, key, etag)} if etag else {})}
        if "body" not in before:
            return {**inverse, "way": DELETE, **left, "before": ""}
        kept = {name: before[name] for name in ("body", "metadata", "type", "more", "lost")}
        return {**inverse, "way": PUT, **left, "before": before["etag"], "was": before["modified"], **kept}
