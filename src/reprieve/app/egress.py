"""Where an undo request may go. The rules are policy's; this is the form in which effects ask for them."""

from __future__ import annotations


def address_for(forward: str, url: str) -> str:
    """The address to connect to, for an undo of a call to the origin `forward`. Raises Refused."""
    from reprieve.policy.egress import address_for as checked

    return checked(forward, url)
