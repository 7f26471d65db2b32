"""Threads that only those who have the key can read: a cover around another store.

An entry's body is sealed for its place: thread, number, kind, namespace, state, parent and the hash of the entry before
it are authenticated with it, so that a body that was moved anywhere else is refused. The chain's hashes cover what is
stored, so the chain can be proven without the key.

    body = 01, u32 length, JSON in the clear, 12 bytes nonce, AES-256-GCM( JSON of the rest )

Parts are found by what they hold. Their plain SHA-256 would tell everybody who guesses a part whether he is right, so a
part's name is a keyed hash, and its nonce comes from that name: equal parts are still kept once, and a nonce is used
for one content only. The name is authenticated with the part: under another name it is refused.

Readable without the key: how many threads, entries and parts there are, how long they are, when they were written, ids,
namespaces, which file checkpoint a state belongs to, and what was pruned.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from reprieve.errors import Misconfigured, StoreCorrupted
from reprieve.model.thread import MOVE, PRUNE, STATE, ThreadEntry
from reprieve.store.hashing import sha256_in_thread as sha256

if TYPE_CHECKING:
    from reprieve.store.thread_protocol import ThreadStore

SHORTEST = 32  # bytes of a key
_SEALED = b"\x01"
_NONCE = 12
# fields that stay readable: what it takes to prove the chain and to find the files of a state
_CLEAR = {STATE: ("files",), MOVE: ("heads",), PRUNE: ("heads", "removed", "deleted")}
_HINTS = ("give the key with which they were made: ReprieveSaver(…, key='env:VARIABLE')", "or --key env:VARIABLE")


class Cipher:
    """What one key does. Raises Misconfigured if it is too short, or the cryptography package is not there."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SHORTEST:
            raise Misconfigured(
                f"the key has {len(secret)} bytes; it needs at least {SHORTEST}",
                hints=["make one: openssl rand -hex 32"],
            )
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as exc:
            raise Misconfigured(
                "encrypted threads need the cryptography package", hints=["pip install 'reprieve[encryption]'"]
            ) from exc
        self._refused = InvalidTag
        root = _mac(b"reprieve threads 1", secret)
        self._names, self._nonces = _mac(root, b"names of parts"), _mac(root, b"nonces of parts")
        self._parts, self._entries = AESGCM(_mac(root, b"parts")), AESGCM(_mac(root, b"entries"))
        self.mark = _mac(root, b"mark").hex()[:32]  # tells one key from another, and nothing about either

    def name(self, body: bytes) -> bytes:
        """Under which a part is kept."""
        return _mac(self._names, body)

    def seal_part(self, name: bytes, body: bytes) -> bytes:
        """The part as it is stored."""
        return self._parts.encrypt(_mac(self._nonces, name)[:_NONCE], body, name)

    def open_part(self, name: bytes, stored: bytes) -> bytes:
        """The part; empty, which no part is, if this is not what was stored under that name."""
        try:
            return self._parts.decrypt(_mac(self._nonces, name)[:_NONCE], stored, name)
        except self._refused:
            return b""

    def seal(self, thread: str, entry: ThreadEntry) -> bytes:
        """The body of an entry that has its place, as it is stored."""
        said = json.loads(entry.body)
        clear = _json({name: said.pop(name) for name in _CLEAR.get(entry.kind, ()) if name in said})
        nonce = os.urandom(_NONCE)
        sealed = self._entries.encrypt(nonce, _json(said), _place(thread, entry) + clear)
        return _SEALED + len(clear).to_bytes(4, "little") + clear + nonce + sealed

    def open(self, thread: str, entry: ThreadEntry) -> ThreadEntry:
        """The entry with the body that it had. Raises StoreCorrupted."""
        clear, nonce, sealed = _cut(entry.body)
        try:
            rest = self._entries.decrypt(nonce, sealed, _place(thread, entry) + clear)
        except self._refused as exc:
            raise StoreCorrupted(
                f"entry {entry.seq} of the thread '{thread}' is not what was sealed there",
                hints=["see: reprieve thread verify"],
            ) from exc
        return entry._replace(body=_json({**json.loads(rest), **json.loads(clear)}))


class SealedThreads:
    """A store whose bodies and parts are sealed; without a cipher nothing of them can be read. Else the store below."""

    def __init__(self, raw: ThreadStore, cipher: Cipher | None) -> None:
        self.raw = raw
        self.cipher = cipher

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def entries(self, thread: str, **which: Any) -> list[ThreadEntry]:
        """As the store's, opened."""
        return self._opened(thread, self.raw.entries(thread, **which))

    def about(self, thread: str, ns: str, ids: Sequence[str]) -> list[ThreadEntry]:
        """As the store's, opened."""
        return self._opened(thread, self.raw.about(thread, ns, ids))

    def states(self, thread: str, ns: str | None, **which: Any) -> list[ThreadEntry]:
        """As the store's, opened."""
        return self._opened(thread, self.raw.states(thread, ns, **which))

    def put_parts(self, thread: str, parts: Mapping[bytes, bytes]) -> None:
        """As the store's, sealed."""
        cipher = self.key()
        self.raw.put_parts(thread, {name: cipher.seal_part(name, body) for name, body in parts.items()})

    def parts(self, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """As the store's, opened."""
        cipher = self.key()
        return {name: cipher.open_part(name, stored) for name, stored in self.raw.parts(hashes).items()}

    def key(self) -> Cipher:
        """Raises Misconfigured without one."""
        if self.cipher is None:
            raise Misconfigured("these threads are encrypted, and no key was given", hints=_HINTS)
        return self.cipher

    def _opened(self, thread: str, entries: Sequence[ThreadEntry]) -> list[ThreadEntry]:
        cipher = self.key()
        return [cipher.open(thread, entry) for entry in entries]


def covered(store: ThreadStore, secret: bytes | None) -> ThreadStore:
    """The store as it is to be used with a key, or without. A store is sealed from its first thread on, or never.

    Raises Misconfigured if the key is not the store's.
    """
    mark = store.mark()
    if secret is None:
        return cast("ThreadStore", SealedThreads(store, None)) if mark else store
    cipher = Cipher(secret)
    if not mark:
        with store.transaction():
            mark = store.mark()
            if not mark and store.threads():
                raise Misconfigured(
                    "the threads there are not encrypted, and cannot be mixed with some that are",
                    hints=["use another folder", "or leave out the key"],
                )
            if not mark:
                store.set_mark(cipher.mark)
                mark = cipher.mark
    if mark != cipher.mark:
        raise Misconfigured("the key is not the one with which these threads were encrypted", hints=_HINTS)
    return cast("ThreadStore", SealedThreads(store, cipher))


def raw_of(store: ThreadStore) -> ThreadStore:
    """The store below: entries as they are stored, which the chain's hashes cover."""
    return store.raw if isinstance(store, SealedThreads) else store


def sealing(store: ThreadStore) -> Callable[[str, ThreadEntry], bytes] | None:
    """How bodies are sealed in a store, if they are."""
    if not isinstance(store, SealedThreads):
        return None
    return lambda thread, entry: store.key().seal(thread, entry)


def naming(store: ThreadStore) -> Callable[[bytes], bytes]:
    """How parts are named in a store: by their hash, or by one that needs the key."""
    if not isinstance(store, SealedThreads):
        return sha256
    return store.cipher.name if store.cipher is not None else lambda body: store.key().name(body)


def readable(body: bytes) -> Any:
    """What a stored body says to everybody: all of it, if it is not sealed. Raises StoreCorrupted."""
    clear = _cut(body)[0] if body[:1] == _SEALED else body
    try:
        return json.loads(clear)
    except ValueError as exc:
        raise StoreCorrupted(f"a stored value is not JSON: {exc}") from exc


def _cut(body: bytes) -> tuple[bytes, bytes, bytes]:
    end = 5 + int.from_bytes(body[1:5], "little")
    if body[:1] != _SEALED or len(body) < end + _NONCE + 16:
        raise StoreCorrupted("a stored body is not sealed as it should be", hints=["see: reprieve thread verify"])
    return body[5:end], body[end : end + _NONCE], body[end + _NONCE :]


def _place(thread: str, entry: ThreadEntry) -> bytes:
    parts = []
    for word in (thread, str(entry.seq), entry.kind, entry.ns, entry.id, entry.parent, entry.prev.hex()):
        raw = word.encode("utf-8", "surrogatepass")
        parts += [len(raw).to_bytes(8, "little"), raw]
    return b"".join(parts)


def _json(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")
