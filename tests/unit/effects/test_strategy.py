"""The order of the ways back is declared once, and whoever offers none stands before the gate."""

from __future__ import annotations

from itertools import product

from reprieve.effects.strategy import ORDER, choose

OFFERS = ("is_transactional", "has_before_image", "has_compensator", "is_holdable")


def test_P12_the_first_way_in_the_declared_order_is_taken() -> None:
    assert ORDER == ("transaction", "before-image", "compensator", "hold", "gate")
    for offered in product((True, False), repeat=4):
        first = next((place for place, there in zip(ORDER, offered, strict=False) if there), "gate")
        assert choose(**dict(zip(OFFERS, offered, strict=True))).name == first


def test_P12_without_a_transaction_and_without_an_inverse_it_is_irreversible() -> None:
    assert choose().cls == "irreversible"
    assert [choose(**{offer: True}).cls for offer in OFFERS] == ["reversible", "restorable", "compensable", "holdable"]
