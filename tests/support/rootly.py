"""Tests that only root can set up."""

from __future__ import annotations

import os

import pytest

_MARKS = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: foreign owners, mounts, chattr"),
]


def root_only(test):  # type: ignore[no-untyped-def]
    """A test that only root can set up."""
    for mark in _MARKS:
        test = mark(test)
    return test
