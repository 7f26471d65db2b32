"""Reading a command line by its description."""

from __future__ import annotations

import pytest

from reprieve.cli import catalog
from reprieve.cli.spec import Parsed, parse
from reprieve.errors import Usage


def read(*words: str) -> Parsed:
    parsed = Parsed()
    parse(words, parsed, find=catalog.find, names=catalog.NAMES)
    return parsed


def refuse(*words: str) -> Usage:
    with pytest.raises(Usage) as caught:
        read(*words)
    return caught.value


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "-q", "-C", "dir", "rollback", "ref"),
        ("rollback", "ref", "--json", "-q", "-C", "dir"),
        ("-Cdir", "rollback", "--quiet", "ref", "--json"),
        ("rollback", "--directory=dir", "ref", "-q", "--json"),
        ("-qC", "dir", "--json", "rollback", "ref"),
    ],
)
def test_global_options_stand_before_or_after_the_command(words: tuple[str, ...]) -> None:
    parsed = read(*words)
    assert parsed.word == "rollback"
    assert parsed.flag("json") and parsed.flag("quiet")
    assert (parsed.text("directory"), parsed.text("REF")) == ("dir", "ref")


@pytest.mark.parametrize("words", [("--on-conflict", "keep"), ("--on-conflict=keep",)])
def test_a_value_follows_its_option_or_an_equals_sign(words: tuple[str, ...]) -> None:
    assert read("rollback", *words).text("on-conflict") == "keep"


def test_an_empty_value_after_an_equals_sign_is_a_value() -> None:
    assert read("checkpoint", "--note=").maybe("note") == ""


def test_an_equals_sign_inside_a_value_belongs_to_the_value() -> None:
    assert read("checkpoint", "--note=a=b").text("note") == "a=b"


def test_a_short_option_takes_its_value_with_or_without_a_space() -> None:
    assert read("log", "-n5").number("number") == read("log", "-n", "5").number("number") == 5


def test_a_repeatable_option_collects_its_values() -> None:
    assert read("rollback", "--only", "a", "--only=b").many("only") == ("a", "b")


def test_an_option_that_is_not_repeatable_is_refused_twice() -> None:
    assert "given twice" in refuse("status", "--since", "a", "--since", "b").message


def test_what_follows_two_dashes_is_never_an_option() -> None:
    assert read("revert", "--", "--json", "-q").many("PATH") == ("--json", "-q")
    assert not read("revert", "--", "--json").flag("json")


def test_a_single_dash_is_an_argument() -> None:
    assert read("show", "-").text("REF") == "-"


def test_diff_takes_refs_before_and_paths_after_the_dashes() -> None:
    parsed = read("diff", "~2", "latest", "--stat", "--", "src", "--odd name")
    assert (parsed.text("REF"), parsed.text("OTHER")) == ("~2", "latest")
    assert parsed.many("PATH") == ("src", "--odd name")


def test_diff_refuses_a_third_ref_and_says_where_paths_go() -> None:
    error = refuse("diff", "a", "b", "c")
    assert "'c'" in error.message
    assert any("after '--'" in hint for hint in error.hints)


@pytest.mark.parametrize("dashes", [("--",), ()])
def test_run_hands_every_word_of_the_command_on(dashes: tuple[str, ...]) -> None:
    parsed = read("run", "--label", "x", *dashes, "make", "--json", "-q", "--", "--label", "y")
    assert parsed.many("CMD") == ("make", "--json", "-q", "--", "--label", "y")
    assert parsed.text("label") == "x"
    assert not parsed.flag("json")


def test_an_unknown_command_is_refused_with_the_nearest_name() -> None:
    error = refuse("rolback")
    assert error.message == "'rolback' is not a command"
    assert error.hints[0] == "did you mean 'rollback'?"


@pytest.mark.parametrize("word", ["tui", "web"])
def test_commands_of_later_versions_are_plainly_not_commands(word: str) -> None:
    assert refuse(word).message == f"'{word}' is not a command"


@pytest.mark.parametrize(("given", "meant"), [("--dry", "--dry-run"), ("--dryrun", "--dry-run"), ("--jsn", "--json")])
def test_an_unknown_option_is_refused_with_the_nearest_one(given: str, meant: str) -> None:
    error = refuse("rollback", given)
    assert f"'{given}'" in error.message
    assert error.hints[0] == f"did you mean '{meant}'?"


def test_an_unknown_option_without_a_near_one_points_to_the_help() -> None:
    assert refuse("gc", "--xyzzy").hints == ("see: reprieve gc --help",)


def test_options_of_one_command_are_unknown_to_another() -> None:
    assert "--everything" in refuse("status", "--everything").message


@pytest.mark.parametrize("words", [("status", "--since"), ("rollback", "--only", "--"), ("log", "-n")])
def test_an_option_without_its_value_is_refused(words: tuple[str, ...]) -> None:
    assert "needs a value" in refuse(*words).message


def test_a_flag_takes_no_value() -> None:
    assert "takes no value" in refuse("rollback", "--yes=no").message


def test_a_choice_that_is_none_is_refused_with_the_choices() -> None:
    error = refuse("rollback", "--on-conflict", "kep")
    assert error.hints == ("did you mean 'keep'?", "choose one of: abort, keep, theirs, merge, both")


def test_an_argument_with_choices_is_checked_too() -> None:
    assert "'tcsh'" in refuse("completion", "tcsh").message


def test_a_missing_argument_is_refused_with_an_example() -> None:
    error = refuse("show")
    assert error.message == "'show' needs REF"
    assert error.hints[0].startswith("for example: reprieve show")


@pytest.mark.parametrize(
    "words", [("rollback", ""), ("revert", ""), ("rollback", "--only="), ("status", "--since", "")]
)
def test_an_unset_variable_does_not_mean_everything(words: tuple[str, ...]) -> None:
    assert refuse(*words).message.endswith(" is empty")


def test_help_wins_over_a_missing_argument() -> None:
    assert read("show", "--help").flag("help")


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(Usage, match="whole number"):
        read("log", "-n", "few").number("number")


def test_what_was_understood_is_kept_when_the_rest_is_refused() -> None:
    """An error in JSON names its command, also if an option is what is wrong."""
    parsed = Parsed()
    with pytest.raises(Usage):
        parse(["status", "--nope"], parsed, find=catalog.find, names=catalog.NAMES)
    assert parsed.word == "status"
