"""Every HTTP client that is recorded, behind one face: `send(method, url, json=…) -> (status, body)`."""

from __future__ import annotations

import asyncio
import json as jsons
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

Send = Callable[..., tuple[int, bytes]]


def by_httpx(method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    import httpx

    with httpx.Client(timeout=10) as client:
        done = client.request(method, url, json=json, headers=dict(headers or {}))
    return done.status_code, done.content


def by_httpx_async(
    method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    import httpx

    async def go() -> tuple[int, bytes]:
        async with httpx.AsyncClient(timeout=10) as client:
            done = await client.request(method, url, json=json, headers=dict(headers or {}))
        return done.status_code, done.content

    return asyncio.run(go())


def by_requests(
    method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    import requests

    with requests.Session() as session:
        done = session.request(method, url, json=json, headers=dict(headers or {}), timeout=10)
        return done.status_code, done.content


def by_urllib3(
    method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    import urllib3

    with urllib3.PoolManager() as pool:
        body = None if json is None else jsons.dumps(json).encode()
        done = pool.request(
            method, url, body=body, retries=False, headers={"Content-Type": "application/json", **(headers or {})}
        )
        return done.status, done.data


def by_aiohttp(
    method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    import aiohttp

    async def go() -> tuple[int, bytes]:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.request(method, url, json=json, headers=dict(headers or {})) as done,
        ):
            return done.status, await done.read()

    return asyncio.run(go())


def by_urllib(
    method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    body = None if json is None else jsons.dumps(json).encode()
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=10) as done:
            return done.status, done.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read()


CLIENTS: dict[str, Send] = {
    "httpx": by_httpx,
    "httpx-async": by_httpx_async,
    "requests": by_requests,
    "urllib3": by_urllib3,
    "aiohttp": by_aiohttp,
    "urllib": by_urllib,
}
