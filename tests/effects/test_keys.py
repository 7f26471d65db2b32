"""Idempotency keys: a repeat is safe only as long as the server remembers the key."""

from __future__ import annotations

from reprieve.effects.http import HttpDriver
from reprieve.effects.journal import Journal, Place
from reprieve.model.effect import EffectDraft

HOUR = 3600 * 10**9


def test_bad_case_36_an_undo_whose_key_has_expired_is_not_sent_again(journal: Journal) -> None:
    """After a day the server may take the same key for a new request: then a person has to look."""
    inverse: dict[str, object] = {"kind": "http", "method": "POST", "url": "http://h/refunds", "is_idempotent": True}
    recorded = journal.record(EffectDraft("http", "compensable", "r", "d", inverse=inverse), Place(at=1))
    begun = journal.start_undo(recorded.id)
    for hours, expected in ((0, True), (23, True), (25, False)):
        now = begun.undo_at + hours * HOUR
        driver = HttpDriver(
            lambda *_: "",
            sign=lambda _: "",
            sleep=lambda _: None,
            clock=lambda now=now: now,  # type: ignore[misc]
        )
        assert driver.may_repeat(begun) is expected, hours
        put = begun.replace(inverse={**inverse, "method": "PUT"})
        assert driver.may_repeat(put), "what is idempotent by itself needs no key"
