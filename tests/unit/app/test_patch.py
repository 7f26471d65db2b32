"""Diffs that people read and `git apply` takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reprieve.app.lines import compare_change
from reprieve.app.patch import diff_lines, stat_lines
from reprieve.model.change import Change, classify
from reprieve.model.entry import DIR, FILE, SYMLINK, Entry


def entry(content: bytes = b"", *, kind: bytes = FILE, mode: int = 0o644, **fields: object) -> Entry:
    # the content stands for its own hash: equal bytes, equal id
    plain = Entry(kind, mode, 0, 0, size=len(content), content=content if kind == FILE else b"")
    return plain.replace(**fields)


def change(path: bytes, before: Entry | None, after: Entry | None) -> Change:
    return Change(path, classify(before, after), before, after)


def draw(*changes: Change) -> bytes:
    out = b""
    for each in changes:
        lines = compare_change(each, read_before=lambda e: e.content, read_after=lambda e: e.content)
        out += b"".join(text + b"\n" for text, _ in diff_lines(each, lines))
    return out


def stat(*changes: Change) -> str:
    compared = [
        (c, compare_change(c, read_before=lambda e: e.content, read_after=lambda e: e.content)) for c in changes
    ]
    return b"\n".join(text for text, _ in stat_lines(compared)).decode()


def test_a_modified_file() -> None:
    assert draw(change(b"a", entry(b"1\n2\n3\n"), entry(b"1\nzwei\n3\n"))) == (
        b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+zwei\n 3\n"
    )


def test_a_missing_end_of_line_is_said_on_the_side_where_it_is_missing() -> None:
    assert draw(change(b"a", entry(b"1\n2"), entry(b"1\n2\n"))).endswith(
        b"@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+2\n"
    )


def test_created_and_deleted_files_come_from_and_go_to_nothing() -> None:
    created = draw(change(b"n", None, entry(b"x\n", mode=0o755)))
    assert created == b"diff --git a/n b/n\nnew file mode 100755\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
    deleted = draw(change(b"n", entry(b"x\n"), None))
    assert b"deleted file mode 100644\n--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" in deleted


def test_binary_content_is_only_told() -> None:
    text = draw(change(b"b", entry(b"\0" * 2000), entry(b"\0\1")))
    text = re.sub(rb"index [0-9a-f]+\.\.[0-9a-f]+\n", b"", text)
    assert text == b"diff --git a/b b/b\nBinary files a/b and b/b differ\nSize: 2.0 kB, now 2 bytes\n"


def test_a_mode_alone_and_a_mode_with_content() -> None:
    assert draw(change(b"x", entry(b"1\n"), entry(b"1\n", mode=0o755))) == (
        b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"
    )
    assert b"new mode 100755\n--- a/x" in draw(change(b"x", entry(b"1\n"), entry(b"2\n", mode=0o755)))


def test_setuid_owners_and_attributes_are_said_though_git_has_no_word_for_them() -> None:
    after = entry(b"1\n", mode=0o4755, uid=7, xattrs=((b"user.a", b"1"),))
    text = draw(change(b"x", entry(b"1\n", mode=0o755), after))
    assert b"Mode 0755 became 4755\nOwner 0:0 became 7:0\nExtended attributes differ\n" in text


def test_a_file_that_became_a_link() -> None:
    text = draw(change(b"x", entry(b"1\n"), entry(kind=SYMLINK, target=b"/etc/passwd")))
    assert b"file became symlink\n" in text
    assert b"-1\n+/etc/passwd\n\\ No newline at end of file\n" in text


def test_directories_are_one_line() -> None:
    assert draw(change(b"d", None, entry(kind=DIR, mode=0o700))) == (
        b"diff --git a/d b/d\ndirectory created, mode 0700\n"
    )


def test_names_that_would_break_the_line_are_quoted_as_git_does() -> None:
    text = draw(change(b'a"b\nc\x1b\xff', None, entry(b"")))
    assert text.startswith(b'diff --git "a/a\\"b\\nc\\033\\377" "b/a\\"b\\nc\\033\\377"\n')
    turned = draw(change("x\u202egpj.exe".encode(), None, entry(b"")))
    assert turned.startswith(b'diff --git "a/x\\342\\200\\256gpj.exe"')
    assert draw(change("ünï".encode(), None, entry(b""))).startswith("diff --git a/ünï b/ünï\n".encode())


def test_what_was_not_captured_or_is_large_is_said_and_not_read() -> None:
    def never(_entry: Entry) -> bytes:
        raise AssertionError("read")

    large = change(b"l", entry(b"1\n"), entry(b"2\n", size=100 << 20))
    lines = compare_change(large, read_before=lambda e: e.content, read_after=never)
    assert "larger than" in lines.reason
    gap = change(b"g", entry(b"1\n"), entry(b"", gap="excluded"))
    assert "excluded" in compare_change(gap, read_before=lambda e: e.content, read_after=never).reason


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_applies_what_we_draw(tmp_path: Path) -> None:
    """The output is a patch: applied to the old tree it gives the new one."""
    old = {b"mod": b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", b"sub/gone": b"bye", b"tail": b"no end"}
    new = {b"mod": b"1\n2\n3\nX\n5\n6\n7\n8\n9\n10\n11", b"sub/new file": b"hi\n", b"tail": b"no end\n"}
    for name, content in old.items():
        path = tmp_path / name.decode()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o644)
    changes = []
    for name in sorted(old.keys() | new.keys()):
        before = entry(old[name]) if name in old else None
        after = entry(new[name], mode=0o755) if name in new else None
        changes.append(change(name, before, after))
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "apply", "--verbose", "-"],
        input=draw(*changes),
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {bytes(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == new
    assert (tmp_path / "mod").stat().st_mode & 0o777 == 0o755


def test_stat_counts_lines_and_names_the_rest() -> None:
    text = stat(
        change(b"a", entry(b"1\n2\n"), entry(b"1\nx\ny\n")),
        change(b"bin", entry(b"\0"), entry(b"\0\1")),
        change(b"m", entry(b"1\n"), entry(b"1\n", mode=0o600)),
        change(b"d", None, entry(kind=DIR)),
    )
    assert text.split("\n") == [
        " a   | 3 ++-",
        " bin | binary (1 byte, now 2 bytes)",
        " m   | mode 0644 became 0600",
        " d   | directory created",
        "4 paths changed, 2 lines added, 1 line removed",
    ]
