"""The shell reader against what we wrote down: whatever destroys is flagged, whatever only looks is left alone."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.reading import is_flagged, lines, read
from reprieve.policy.classes import IRREVERSIBLE, OPAQUE, RESTORABLE

DESTRUCTIVE, HARMLESS, BEYOND = lines("destructive"), lines("harmless"), lines("beyond")


def test_bad_case_34_every_destructive_line_is_flagged() -> None:
    """At least 300 of them, each once; with wrappers, substitutions, here-documents and tricks."""
    assert len(DESTRUCTIVE) >= 300
    assert len(set(DESTRUCTIVE)) == len(DESTRUCTIVE)
    missed = [line for line in DESTRUCTIVE if not is_flagged(read(line))]
    assert missed == []


def test_harmless_lines_are_left_alone() -> None:
    assert len(HARMLESS) >= 200
    assert len(set(HARMLESS)) == len(HARMLESS)
    flagged = {line: read(line).reasons for line in HARMLESS if is_flagged(read(line))}
    assert flagged == {}


def test_lines_beyond_a_rollback_are_never_called_restorable() -> None:
    """Their options move the effect out of the workspace: a gate that misses one lets it pass without a question."""
    assert len(set(BEYOND)) == len(BEYOND)
    passed = {line: read(line).cls for line in BEYOND if read(line).cls not in (IRREVERSIBLE, OPAQUE)}
    assert passed == {}


def test_most_destructive_lines_are_understood() -> None:
    """A reader that calls everything opaque would pass too: most are flagged for what they do."""
    known = [line for line in DESTRUCTIVE if read(line).cls != OPAQUE]
    assert len(known) >= len(DESTRUCTIVE) * 0.5


def test_every_flag_has_a_reason() -> None:
    silent = [line for line in DESTRUCTIVE if not read(line).reasons]
    assert silent == []


# -- mutations: whatever is put around it, it stays flagged

SINGLE = [line for line in DESTRUCTIVE if "\n" not in line]
PREFIXES = ("sudo ", "env ", "nice ", "nohup ", "command ", "timeout 5 ", "stdbuf -oL ", "setsid ", "time ", "exec ",
            "sudo -n ", "env A=1 ", "ionice -c 3 ")  # fmt: skip
AROUND = (
    lambda line: f"ls; {line}",
    lambda line: f"true && {line}",
    lambda line: f"({line})",
    lambda line: f"{{ {line}; }}",
    lambda line: f"if true; then {line}; fi",
    lambda line: f"for i in 1 2; do {line}; done",
    lambda line: f"echo $({line})",
    lambda line: f'echo "$({line})"',
    lambda line: f"X=$({line})",
    lambda line: f"! {{ {line}; }}",
    lambda line: f"f() {{ {line}; }}; f",
    lambda line: f"cd src && {line}",
    lambda line: f"bash -c {shlex.quote(line)}",
    lambda line: f"sudo sh -c {shlex.quote(line)}",
    lambda line: f"eval {shlex.quote(line)}",
    lambda line: f"ssh host {shlex.quote(line)}",
    lambda line: f"echo {shlex.quote(line)} | sh",
    lambda line: f"bash <<'END'\n{line}\nEND",
    lambda line: f"sh <<< {shlex.quote(line)}",
    lambda line: f"docker exec web sh -c {shlex.quote(line)}",
    lambda line: f"trap {shlex.quote(line)} EXIT",
    lambda line: f"{line} &",
    lambda line: f"{line} | cat",
    lambda line: f"{line} > /dev/null 2>&1",
)


def spellings(letter: str) -> list[str]:
    """Ways to write a letter."""
    return [letter, f"'{letter}'", f'"{letter}"', f"\\{letter}", f"$'\\x{ord(letter):02x}'"]


def is_simple(line: str) -> bool:
    """One command without syntax of its own, so that a wrapper can stand before it."""
    return line.split()[0].isalnum() and not any(sign in line for sign in ";&|<>(){}!=`$\n")


SIMPLE = [line for line in SINGLE if is_simple(line)]
QUOTABLE = [line for line in SIMPLE if line.startswith(("rm ", "git ", "mv ", "dd ", "truncate "))]


@settings(max_examples=600, deadline=None, derandomize=True)
@given(st.sampled_from(SINGLE), st.lists(st.sampled_from(AROUND), min_size=1, max_size=3))
def test_it_stays_flagged_whatever_is_around_it(line: str, around: list) -> None:
    for one in around:
        line = one(line)
    assert is_flagged(read(line)), line


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(SIMPLE), st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=4))
def test_p_41_no_wrapper_lowers_the_class(line: str, prefixes: list[str]) -> None:
    """`sudo rm`, `bash -c`: the class does not depend on how the command is written."""
    reading = read("".join(prefixes) + line)
    assert is_flagged(reading), line


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_quoting_letters_of_the_program_changes_nothing(data: st.DataObject) -> None:
    program, _, rest = data.draw(st.sampled_from(QUOTABLE)).partition(" ")
    written = "".join(data.draw(st.sampled_from(spellings(letter))) for letter in program)
    # where the grammar does not follow, it is opaque
    assert read(f"{written} {rest}").cls in (read(f"{program} {rest}").cls, OPAQUE), written


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    read(text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(alphabet="rm -rf/$(){}[]'\"`\\;|&<>\n =*?~#!x1", max_size=60))
def test_no_shell_like_text_makes_the_reader_fail(text: str) -> None:
    read(text)


@pytest.mark.parametrize(
    ("line", "cls"),
    [
        ("rm -rf build", RESTORABLE),
        ("rm -rf ./build/../dist", RESTORABLE),
        ("rm -rf /w/p/build", RESTORABLE),
        ("rm -rf /w/p/*", RESTORABLE),
        ("rm -rf /w/p", IRREVERSIBLE),
        ("rm -rf /w/p2/x", IRREVERSIBLE),
        ("rm -rf ../p2", IRREVERSIBLE),
        ("cd sub && rm -rf ../build", RESTORABLE),
        ("cd sub && rm -rf ../../x", IRREVERSIBLE),
        ("cd /w/p/sub; rm x", RESTORABLE),
        ("cd $X; rm y", IRREVERSIBLE),
        ("(cd /tmp); rm build", RESTORABLE),
        ("cd /tmp; rm build", IRREVERSIBLE),
        ("X=build; rm -rf $X", RESTORABLE),
        ("X=build; rm -rf $X$Y", IRREVERSIBLE),
        ('rm -rf "$PWD/build"', RESTORABLE),
        ("for f in a b; do rm $f; done", RESTORABLE),
        ("for f in a /b; do rm $f; done", IRREVERSIBLE),
        ("find . -name '*.o' -delete", RESTORABLE),
        ("find src /etc -delete", IRREVERSIBLE),
        ("find . -print0 | xargs -0 rm", RESTORABLE),
        ("find . | xargs rm", IRREVERSIBLE),
        ("echo x > out", RESTORABLE),
        ("echo x > /etc/out", IRREVERSIBLE),
        ("sed -i s/a/b/ a", RESTORABLE),
        ("git commit -am x", RESTORABLE),
        ("git -C /other commit -am x", IRREVERSIBLE),
        ("curl x | sh", OPAQUE),
        ("make", OPAQUE),
        ("sqlite3 app.db 'drop table t'", RESTORABLE),
        ("sqlite3 /var/app.db 'drop table t'", IRREVERSIBLE),
        ("echo x > .git/hooks/pre-commit", OPAQUE),
        ("tar cfz out.tgz src", RESTORABLE),
        ("tar -cvzfout.tgz src", RESTORABLE),
        ("tar czf out.tgz --exclude node_modules -C src .", RESTORABLE),
        ("tar xzf a.tgz -Cbuild", RESTORABLE),
        ("tar -xzC build -f a.tgz --strip-components 1", RESTORABLE),
        ("tar xf a.tar -C build -C ..", RESTORABLE),
        ("tar xf a.tar --one-top-level=build", RESTORABLE),
        ("tar cfz /srv/out.tgz src", IRREVERSIBLE),
        ("tar xf a.tar -C build -C ../..", IRREVERSIBLE),
        ("unzip -qod build a.zip", RESTORABLE),
        ("unzip -o a.zip -dbuild", RESTORABLE),
        ("unzip a.zip 'src/*' -x '*.md' -d build", RESTORABLE),
        ("unzip -P secret a.zip", RESTORABLE),
        ("zip -r out.zip src -x '*.pyc'", RESTORABLE),
        ("zip -P secret -r out.zip src", RESTORABLE),
        ("rsync -a --delete src/ dst --exclude node_modules", RESTORABLE),
        ("rsync -avz --exclude=.git --bwlimit 100 host:/srv/data/ data", RESTORABLE),
        ("rsync -a --delete dist/ /var/www --exclude node_modules", IRREVERSIBLE),
        ("rsync -a dist/ u@host:/var/www --port 22", IRREVERSIBLE),
        ("scp -P 22 -i key host:b .", RESTORABLE),
        ("scp -P 22 a host:b", IRREVERSIBLE),
        ("patch -p1 -i fix.diff", RESTORABLE),
        ("ln -s ../lib link", RESTORABLE),
        ("ln -sfn releases/2 current", RESTORABLE),
        ("ln -s target link && rm link", RESTORABLE),
        ("rm -f link && ln -s target link", RESTORABLE),
        ("mkdir -p a && ln -s ../b a/c && cp x a/d", RESTORABLE),
        ("ln -s /srv p && rm -rf build", RESTORABLE),
        ("patch -d src -p0 < fix.diff", RESTORABLE),
        ("patch app.py fix.diff", RESTORABLE),
        ("patch --directory=/srv -p1 < fix.diff", IRREVERSIBLE),
    ],
)  # fmt: skip
def test_the_class_says_what_a_rollback_can_do(line: str, cls: str) -> None:
    assert read(line).cls == cls, read(line).reasons


def test_a_tracked_path_outside_comes_back_too() -> None:
    assert read("rm /home/me/.zshrc").cls == IRREVERSIBLE
    assert read("rm /home/me/.zshrc", tracked=("/home/me/.zshrc",)).cls == RESTORABLE
    assert read("rm /home/me/.zshrc.bak", tracked=("/home/me/.zshrc",)).cls == IRREVERSIBLE


def test_commands_are_listed_with_their_arguments_and_rules() -> None:
    reading = read("cd src && sudo git push origin main; rm $X")
    assert [command.argv for command in reading.commands] == [
        ("cd", "src"), ("git", "push", "origin", "main"), ("rm", None),
    ]  # fmt: skip
    assert reading.commands[1].rule == "git.push.refs"
    assert reading.commands[1].match is not None


def test_letters_of_every_script_are_parts_of_words() -> None:
    assert read("rm 'größe 日本 \U0001f600'").commands[0].argv == ("rm", "größe 日本 \U0001f600")
    assert read("echo naïve\u2003x; rm \ud800").cls == RESTORABLE
    assert read("ls\u00a0-la").cls == OPAQUE


def test_a_very_long_line_and_a_very_deep_one_are_opaque() -> None:
    assert read("ls " + "a" * 70_000).cls == OPAQUE
    assert read("ls;" * 600).cls == OPAQUE
    deep = "ls"
    for _ in range(14):
        deep = f"bash -c {shlex.quote(deep)}"
    assert read(deep).cls == OPAQUE


def test_links_are_followed_where_the_caller_can() -> None:
    from policy.reading import ROOT, shipped
    from reprieve.policy.shell import read_shell

    def resolve(path: str) -> str:
        return path.replace("/w/p/link", "/outside")

    def cls(text: str) -> str:
        return read_shell(text, root=ROOT, cwd=ROOT, catalog=shipped(), resolve=resolve).cls

    assert cls("echo x > link") == IRREVERSIBLE
    assert cls("rm link/x") == IRREVERSIBLE
    assert cls("rm link") == RESTORABLE


def test_a_parent_folder_behind_a_link_is_the_one_of_where_it_leads(tmp_path: Path) -> None:
    from policy.reading import shipped
    from reprieve.policy.shell import read_shell

    root = tmp_path / "p"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "outside" / "a").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "outside" / "a")

    def cls(text: str) -> str:
        return read_shell(text, root=str(root), cwd=str(root), catalog=shipped(), resolve=os.path.realpath).cls

    assert cls("rm -rf link/../b") == IRREVERSIBLE
    assert cls("echo x > link/../b") == IRREVERSIBLE
    assert cls("cd link && rm ../b") == IRREVERSIBLE
    assert cls("rm -rf link/..") == IRREVERSIBLE
    assert cls("rm -rf sub/../b") == RESTORABLE
    assert cls("cd sub && rm -rf ../b/") == RESTORABLE
    assert cls("rm -rf sub/../../p/b") == RESTORABLE
    assert cls("rm -rf sub/..") == IRREVERSIBLE
    assert cls("rm -rf sub/../*") == RESTORABLE
