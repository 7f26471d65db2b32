"""Both stores of this package keep what the Protocols promise."""

from __future__ import annotations

from pathlib import Path

from reprieve.model.reporter import Reporter
from reprieve.store.local import LocalStore
from reprieve.store.memory import MemoryStore
from reprieve.store.protocols import Store
from reprieve.testing.store_suite import StoreSuite


class TestLocalStore(StoreSuite):
    def open(self, where: Path, *, reporter: Reporter | None = None) -> Store:
        return LocalStore.open(str(where / "home"), reporter=reporter)

    def damage(self, store: Store, id: bytes) -> None:
        assert isinstance(store, LocalStore)
        pack, offset, size = store._db.query(
            "SELECT f.pack, f.offset, f.size FROM objects o JOIN frames f ON f.number = o.frame WHERE o.id = ?", (id,)
        )[0]
        path = Path(store.home.file("packs", f"{pack}.pack"))
        content = bytearray(path.read_bytes())
        content[offset + size - 5] ^= 0x10
        path.write_bytes(content)


class TestMemoryStore(StoreSuite):
    survives = False

    def open(self, where: Path, *, reporter: Reporter | None = None) -> Store:
        return MemoryStore(reporter=reporter)

    def damage(self, store: Store, id: bytes) -> None:
        assert isinstance(store, MemoryStore)
        store.blobs._objects[id] = b"damaged"
