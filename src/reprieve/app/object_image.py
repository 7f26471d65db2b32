"""What an S3 object is besides its bytes, in the words in which `put_object` takes it: headers, tags, grants."""

from __future__ import annotations

from urllib.parse import urlencode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from reprieve.model.effect import Json

_HEADERS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "WebsiteRedirectLocation",
    "StorageClass",
    "ServerSideEncryption",
    "SSEKMSKeyId",
    "BucketKeyEnabled",
)
_GRANTS = {
    "FULL_CONTROL": "GrantFullControl",
    "READ": "GrantRead",
    "READ_ACP": "GrantReadACP",
    "WRITE_ACP": "GrantWriteACP",
}
# storages that have no tags or no access lists say so; then there are none to lose
_UNKNOWN_THERE = ("NotImplemented", "MethodNotAllowed", "XNotImplemented", "UnsupportedOperation", "501", "405")


def properties(client: Any, bucket: str, key: str, found: Mapping[str, Any]) -> Json:
    """`metadata` and `more` to put it back with, and what is `lost`, from the answer to `get_object`."""
    lost: list[str] = []
    more: dict[str, object] = {name: found[name] for name in _HEADERS if found.get(name)}
    metadata = {name: value for name, value in found.get("Metadata", {}).items() if f"{name}{value}".isascii()}
    missing = len(found.get("Metadata", {})) - len(metadata) + int(found.get("MissingMeta") or 0)
    if missing:
        lost.append(f"{missing} of its metadata that can't be written")
    _expiry(found, more, lost)
    where = {"Bucket": bucket, "Key": key}
    for what, read in (("its tags", _tags), ("who else may read it", _grants)):
        try:
            more.update(read(client, where))
        except client.exceptions.ClientError as e:
            if e.response["Error"]["Code"] not in _UNKNOWN_THERE:
                lost.append(f"{what}, which can't be seen ({e.response['Error']['Code']})")
        except KeyError as e:
            lost.append(f"{what}, which can't be written ({e})")
    return {"metadata": metadata, "more": more, "lost": lost}


def _expiry(found: Mapping[str, Any], more: dict[str, object], lost: list[str]) -> None:
    """Any text may be there; only a date can be written."""
    from email.utils import parsedate_to_datetime

    text = found.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("expires", "")
    if not text:
        return
    try:
        more["Expires"] = parsedate_to_datetime(text).isoformat()
    except ValueError:
        lost.append("its Expires, which is no date")


def _tags(client: Any, where: Mapping[str, str]) -> dict[str, object]:
    tags = [(tag["Key"], tag["Value"]) for tag in client.get_object_tagging(**where)["TagSet"]]
    return {"Tagging": urlencode(tags)} if tags else {}


def _grants(client: Any, where: Mapping[str, str]) -> dict[str, object]:
    """Nothing where only its owner has rights, as after every `put_object`."""
    acl = client.get_object_acl(**where)
    owner = acl.get("Owner", {}).get("ID")
    given: dict[str, list[str]] = {}
    for grant in acl.get("Grants", ()):
        grantee = grant["Grantee"]
        who = f'uri="{grantee["URI"]}"' if "URI" in grantee else f'id="{grantee["ID"]}"'
        given.setdefault(_GRANTS[grant["Permission"]], []).append(who)
    if set(given) <= {"GrantFullControl"} and given.get("GrantFullControl", []) in ([], [f'id="{owner}"']):
        return {}
    return {name: ", ".join(who) for name, who in given.items()}
