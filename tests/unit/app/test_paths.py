"""What a path means to someone who stands somewhere in the workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprieve.app.paths import beneath_root
from reprieve.errors import Usage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "out").symlink_to("/etc")
    return root


@pytest.mark.parametrize(
    ("start", "given", "meant"),
    [
        (".", "a", b"a"),
        (".", "./a", b"a"),
        (".", "sub/../a", b"a"),
        ("sub", "a", b"sub/a"),
        ("sub", "../a", b"a"),
        ("sub/deep", ".", b"sub/deep"),
        (".", ".", b""),
        (".", "out/passwd", b"out/passwd"),
        ("sub", "*.py", b"sub/*.py"),
        (".", "\udcff", b"\xff"),
    ],
)
def test_relative_to_where_one_stands(root: Path, start: str, given: str, meant: bytes) -> None:
    assert beneath_root(os.fsencode(root), str(root / start), given) == meant


def test_an_absolute_path_is_found_in_the_tree(root: Path) -> None:
    assert beneath_root(os.fsencode(root), "/", f"{root}/sub/x") == b"sub/x"
    assert beneath_root(os.fsencode(root), "/", str(root)) == b""


def test_the_way_to_the_root_may_go_over_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert beneath_root(os.fsencode(root), str(tmp_path / "alias" / "sub"), "x") == b"sub/x"
    assert beneath_root(os.fsencode(root), "/", str(tmp_path / "alias" / "x")) == b"x"


@pytest.mark.parametrize("given", ["../x", "/etc/passwd", "../ws2/x", "sub/../../x"])
def test_what_is_outside_is_refused(root: Path, given: str) -> None:
    with pytest.raises(Usage, match="outside the workspace"):
        beneath_root(os.fsencode(root), str(root), given)
