"""docs/reference.md knows every command, option, exit code and setting, because it is made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve import errors
from reprieve.app.config import KEYS
from reprieve.cli import catalog
from reprieve.cli.reference import exit_codes, reference
from reprieve.cli.spec import EVERYWHERE, Command

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_is_fresh(page: str) -> None:
    assert page == reference(), "make it anew: python -m reprieve.cli.reference > docs/reference.md"


@pytest.mark.parametrize("command", catalog.every(), ids=lambda command: command.name)
def test_every_command_with_its_options_and_examples_is_there(page: str, command: Command) -> None:
    section = page.partition(f"\n### {command.name}\n")[2].partition("\n##")[0]
    assert command.summary in section
    for option in command.options:
        assert option.name in section
    for argument in command.arguments:
        assert f"`{argument.name}`" in section
    for line, _ in command.examples:
        assert line in section


def test_every_global_option_is_there(page: str) -> None:
    assert all(option.name in page for option in EVERYWHERE)


def test_every_exit_code_is_there(page: str) -> None:
    classes = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.ReprieveError)]
    codes = {error.exit_code for error in classes} | {0, 1, 70, 129, 130, 143}
    assert codes == {code for code, _ in exit_codes()}
    for code in codes:
        assert f"\n| {code} | " in page


def test_every_setting_is_there(page: str) -> None:
    for key in KEYS:
        assert f"\n| `{key.name}` | " in page
        assert key.summary in page
        assert key.variable in page


@pytest.mark.parametrize("command", catalog.every(), ids=lambda command: command.name)
def test_every_command_is_described_in_our_way(command: Command) -> None:
    """Imperative, no full stop, two examples that are commands of ours and differ."""
    assert command.summary[0].isupper() and not command.summary.endswith(".")
    assert len(command.examples) == 2
    assert all("reprieve" in line for line, _ in command.examples)
    assert command.examples[0] != command.examples[1]
    for option in command.options:
        assert option.summary[0].isupper() and not option.summary.endswith(".")


def test_every_environment_variable_that_the_code_reads_is_there(page: str) -> None:
    source = PAGE.parent.parent / "src" / "reprieve"
    # how a run tells its children that it is theirs, and the launcher what it was called
    internal = {"REPRIEVE_RUN", "REPRIEVE_LAUNCHED"}
    used: set[str] = set()
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for piece in text.split("REPRIEVE_")[1:]:
            name = "".join(c if c.isupper() or c == "_" or c.isdigit() else " " for c in piece).split(" ")[0]
            used.add("REPRIEVE_" + name)
    missing = {name for name in used - internal if name not in page and name != "REPRIEVE_"}
    assert not missing


def test_every_command_has_a_test_file_of_its_own() -> None:
    tests = Path(__file__).resolve().parents[1] / "cli"
    assert not [name for name in catalog.NAMES if not (tests / f"test_{name}.py").exists()]


def test_every_command_module_is_in_the_catalogue() -> None:
    folder = PAGE.parent.parent / "src" / "reprieve" / "cli" / "commands"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == set(catalog.NAMES) | set(catalog.HIDDEN.values())
