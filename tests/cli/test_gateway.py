"""`reprieve gateway`: what its command line takes. What passes through it is in tests/gateways/."""

from __future__ import annotations

import pytest

from support import Cli


@pytest.mark.parametrize("words", [(), ("--url", "ftp://x"), ("--url", "http://a:b@x/"), ("--", "no-such-program-x"),
                                   ("--url", "http://x/", "--header", "Authorization: Bearer abcdef")])  # fmt: skip
def test_what_makes_no_sense_is_refused(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("gateway", *words, check=False).code in (2, 5)
