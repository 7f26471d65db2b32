"""Excludes decide as git does: `git check-ignore` is the oracle."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from reprieve.files.ignore import Excludes

NAMES = [
    b"a",
    b"b",
    b"ab",
    b"abc",
    b"foo",
    b"bar",
    b"x.o",
    b"a.o",
    b"foo.py",
    b"A",
    b"-",
    b"]",
    b"a b",
    b"#c",
    b"!d",
    b"s ",
]
ODD = [b"caf\xc3\xa9", b"\xff\xfe.o", b"a\\b", b"[x]", b"new\nline", b"t\tb", b"*"]

Ignored = Callable[[Iterable[bytes]], set[bytes]]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[bytes, bool]]:
    """A repository with files and directories of many names, three levels deep, and what is a directory."""
    root = tmp_path_factory.mktemp("oracle")
    subprocess.run(["git", "init", "-q", root], check=True)
    rng = random.Random(7)
    kinds: dict[bytes, bool] = {}

    def fill(parent: bytes, depth: int) -> None:
        for name in rng.sample(NAMES, 7) + rng.sample(ODD, 2):
            path = parent + b"/" + name if parent else name
            full = os.path.join(os.fsencode(root), path)
            kinds[path] = depth < 3 and rng.random() < 0.4
            if kinds[path]:
                os.mkdir(full)
                fill(path, depth + 1)
            else:
                os.close(os.open(full, os.O_CREAT | os.O_WRONLY))

    fill(b"", 0)
    return root, kinds


@pytest.fixture(scope="module")
def git_ignored(tree: tuple[Path, dict[bytes, bool]]) -> Ignored:
    root, kinds = tree
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(root / ".git")}

    def ask(patterns: Iterable[bytes]) -> set[bytes]:
        (root / ".git" / "info" / "exclude").write_bytes(b"".join(p + b"\n" for p in patterns))
        done = subprocess.run(
            ["git", "check-ignore", "-z", "--stdin", "--no-index"],
            cwd=root,
            env=env,
            input=b"\0".join(kinds),
            capture_output=True,
        )
        assert done.returncode in (0, 1), done.stderr
        return {path for path in done.stdout.split(b"\0") if path}

    return ask


def ours(patterns: list[bytes], kinds: dict[bytes, bool]) -> set[bytes]:
    excludes = Excludes(patterns)
    return {path for path, is_dir in kinds.items() if not excludes.accepts(path, is_dir)}


WRITTEN = [
    [],
    ["# a comment", "", "   "],
    ["foo"],
    ["foo/"],
    ["/foo"],
    ["foo/bar"],
    ["*.o"],
    ["*.o", "!a.o"],
    ["/*", "!/foo", "!/a"],
    ["/*", "!/foo/"],
    ["b", "!a"],
    ["foo", "!foo/bar"],
    ["foo/*", "!foo/bar"],
    ["a/**"],
    ["**/a"],
    ["**/a/b"],
    ["a/**/b"],
    ["a**"],
    ["a**/b"],
    ["foo**/bar"],
    ["***"],
    ["**"],
    ["**/"],
    ["*/"],
    ["/**/foo"],
    ["foo/**/"],
    ["*", "!*/", "!*.o"],
    ["?"],
    ["??", "!ab"],
    ["[ab]"],
    ["[!ab]"],
    ["[^ab]"],
    ["[a-c]*"],
    ["[]]"],
    ["[]-]"],
    ["[a"],
    ["[!"],
    ["[[:alpha:]]"],
    ["[[:upper:][:digit:]]"],
    ["[[:nonsense:]]"],
    ["[[:alpha]"],
    ["[[]x]"],
    ["[\\]]"],
    ["[\\a-c]"],
    ["[/]"],
    ["a[/]b"],
    ["\\#c"],
    ["\\!d"],
    ["#c"],
    ["!d"],
    ["s\\ "],
    ["s "],
    ["s\\\\ "],
    ["a b"],
    ["foo\\"],
    ["\\*"],
    ["\\[x\\]"],
    ["a\\\\b"],
    ["foo//"],
    ["//foo"],
    ["/"],
    ["//"],
    ["!"],
    ["!/"],
    ["foo\r"],
    ["café"],
    ["caf??"],
    ["caf?"],
    ["*é"],
    ["a/", "!a"],
    ["a", "!a/"],
    [".", "./a"],
    ["**\\/a"],
    ["a/*/b"],
    ["*a*"],
    ["*/*"],
    ["/a/../b"],
]


@needs_git
@pytest.mark.parametrize("patterns", WRITTEN, ids=repr)
def test_written_cases_agree_with_git(
    patterns: list[str], tree: tuple[Path, dict[bytes, bool]], git_ignored: Ignored
) -> None:
    lines = [p.encode() for p in patterns]
    assert ours(lines, tree[1]) == git_ignored(lines)


def generated(rng: random.Random) -> list[bytes]:
    """A list of patterns made of pieces that mean something in gitignore, some of them next to nonsense."""
    pieces = [
        *(
            b"a",
            b"b",
            b"c",
            b"o",
            b"foo",
            b"bar",
            b"A",
            b".",
            b".o",
            b"*",
            b"*",
            b"**",
            b"***",
            b"?",
            b"/",
            b"/",
            b"\\",
        ),
        *(
            b"[ab]",
            b"[!a]",
            b"[a-f]",
            b"[^.]",
            b"[]",
            b"[",
            b"]",
            b"[[:alpha:]]",
            b"[[:punct:]",
            b"!",
            b"#",
            b" ",
            b"-",
        ),
        *(b"**/", b"/**", b"/**/", b"\xc3", b"\xff", b"x.o", b"[\\]-a]", b"[--0]", b"[c-a]", b"\\*", b"\\ "),
    ]
    patterns = []
    for _ in range(rng.randint(1, 5)):
        body = b"".join(rng.choice(pieces) for _ in range(rng.randint(1, 4)))
        before, after = rng.choice([b"", b"", b"", b"/", b"!", b"!/"]), rng.choice([b"", b"", b"/", b"/*", b" "])
        patterns.append(before + body + after)
    return patterns


@needs_git
@pytest.mark.parametrize("seed", range(20))
def test_generated_cases_agree_with_git(seed: int, tree: tuple[Path, dict[bytes, bool]], git_ignored: Ignored) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        patterns = generated(rng)
        assert ours(patterns, tree[1]) == git_ignored(patterns), patterns


def test_what_lies_in_an_excluded_directory_is_excluded_whatever_is_asked_first() -> None:
    excludes = Excludes(["build/", "!build/keep.txt"])
    assert not excludes.accepts(b"build/deep/er/keep.txt", False)
    assert not excludes.accepts(b"build/keep.txt", False)
    assert not excludes.accepts(b"build", True)
    assert excludes.accepts(b"build", False)
    assert excludes.accepts(b"", True)


def test_names_that_are_not_utf8() -> None:
    excludes = Excludes(["\udcff*", b"\xfe"])
    assert not excludes.accepts(b"d/\xffx", False)
    assert not excludes.accepts(b"\xfe", True)
    assert excludes.accepts(b"\xfd", False)


def test_a_very_deep_path_is_decided_without_recursion() -> None:
    path = b"/".join([b"d"] * 20_000)
    assert Excludes(["x"]).accepts(path, False)
    assert not Excludes(["d/"]).accepts(path, False)


def test_empty_and_digest() -> None:
    assert Excludes([]).is_empty and Excludes(["", "# nothing"]).is_empty
    assert not Excludes(["x"]).is_empty
    assert Excludes([]).digest == bytes(16)
    digests = {Excludes(p).digest for p in ([], ["a"], ["b"], ["a", "b"], ["b", "a"], ["!a"])}
    assert len(digests) == 6 and all(len(d) == 16 for d in digests)
    assert Excludes(["a"]).digest == Excludes(["a"]).digest
