"""SHA-256 without the import cost of hashlib where little is hashed.

Importing OpenSSL's hashes costs 5 to 13 ms, a fifth of a whole checkpoint; the interpreter's built-in SHA-256 costs
none but runs at a fifth of the speed. So the first two megabytes of a process use the built-in one, all else OpenSSL.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from reprieve.store.protocols import Buffer

_ENOUGH = 2 << 20  # bytes after which the import of OpenSSL has paid for itself


def _built_in() -> Callable[[Buffer], Any]:
    for name in ("_sha2", "_sha256"):  # 3.12 and later, 3.11
        try:
            found: Callable[[Buffer], Any] = __import__(name).sha256
        except (ImportError, AttributeError):
            continue
        return found
    return _openssl()


def _openssl() -> Callable[[Buffer], Any]:
    import hashlib

    return hashlib.sha256


class _Sha256:
    """Calls the hash that is cheapest for as much as was hashed so far."""

    def __init__(self) -> None:
        self._new = _built_in()
        self._left = _ENOUGH

    def hurry(self) -> None:
        """OpenSSL's from now on: for a process that has paid for the import before it is asked for anything."""
        self._new, self._left = _openssl(), -1

    def __call__(self, data: Buffer) -> bytes:
        if self._left >= 0:
            self._left -= len(data)
            if self._left < 0:
                self._new = _openssl()
        digest: bytes = self._new(data).digest()
        return digest


sha256 = _Sha256()


def sha256_in_thread(data: Buffer) -> bytes:
    """OpenSSL's at once: where there are threads there is much to hash, and it lets the others run meanwhile."""
    digest: bytes = _openssl()(data).digest()
    return digest
