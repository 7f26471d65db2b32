"""The write-ahead intent of an operation that moves the tree: enough to finish it, or take it back, after a crash."""

from __future__ import annotations

from reprieve.errors import StoreCorrupted
from reprieve.model.actor import PERSON
from reprieve.model.value import Value
from reprieve.store.chain import as_stored
from reprieve.store.hashing import sha256

_MAGIC = b"reprieve intent 1"
_DIGEST = 32


class Intent(Value):
    """Which moves are under way. `moves` names the delta object (before → after)."""

    operation: str
    kind: str
    target: str
    label: str
    of: str
    safety: str
    stage: bytes
    moves: bytes
    beside: str = ""  # id of the operation of another timeline that this one belongs to
    actor: str = PERSON  # who gives the command

    def encode(self) -> bytes:
        """Bytes for the store."""
        label = as_stored(self.label).replace("\0", " ")  # somebody's words, with anything in them
        fields = (self.operation, self.kind, self.target, label, self.of, self.safety, self.beside)
        data = b"\0".join((_MAGIC, *(f.encode() for f in fields), self.stage, self.moves.hex().encode()))
        if self.actor != PERSON:
            data += b"\0" + self.actor.encode()
        return data + sha256(data)


def decode_intent(data: bytes) -> Intent:
    """The intent that `encode` wrote."""
    data, digest = data[:-_DIGEST], data[-_DIGEST:]
    parts = data.split(b"\0")
    if sha256(data) != digest or len(parts) not in (10, 11) or parts[0] != _MAGIC:
        raise StoreCorrupted("the record of an interrupted rollback cannot be read", hints=["reprieve verify"])
    operation, kind, target, label, of, safety, beside = (p.decode() for p in parts[1:8])
    moves = bytes.fromhex(parts[9].decode())
    actor = parts[10].decode() if len(parts) == 11 else PERSON
    return Intent(operation, kind, target, label, of, safety, parts[8], moves, beside, actor)
