"""The variables that a line sets for a command are known, or the command has no inverse."""

from __future__ import annotations

import pytest

from policy.reading import shipped
from reprieve.policy.scene import SimpleCommand
from reprieve.policy.shell import read_shell

CREATE = "aws iam create-user --user-name deploy"


def command_in(line: str) -> SimpleCommand:
    """The one command of aws in a line."""
    reading = read_shell(line, root="/w", cwd="/w", catalog=shipped(), variables={"HOME": "/home/x"})
    (found,) = [one for one in reading.commands if one.rule == "aws.iam.create-user"]
    return found


@pytest.mark.parametrize(
    "line",
    [
        f"AWS_PROFILE=staging {CREATE}",
        f"X=1 AWS_PROFILE='staging' {CREATE}",
        f"export AWS_PROFILE=staging; {CREATE}",
        f"export AWS_PROFILE=staging && {CREATE}",
        f"export AWS_PROFILE=prod; AWS_PROFILE=staging {CREATE}",
        f"export AWS_PROFILE=prod; export AWS_PROFILE=staging; {CREATE}",
        f"(export AWS_PROFILE=staging; {CREATE})",
        f"AWS_PROFILE=staging timeout 5 {CREATE}",
        f"AWS_PROFILE=staging sh -c '{CREATE}'",
        f'eval "export AWS_PROFILE=staging"; {CREATE}',
        f"name=staging; AWS_PROFILE=$name {CREATE}",
    ],
)
def test_a_variable_that_the_line_sets_is_known(line: str) -> None:
    found = command_in(line)
    assert found.match is not None and dict(found.variables)["AWS_PROFILE"] == "staging"


@pytest.mark.parametrize(
    "line",
    [
        CREATE,
        f"(export AWS_PROFILE=staging; true); {CREATE}",
        f"AWS_PROFILE=x true; {CREATE}",
        f"name=staging; {CREATE}",
        f"export AWS_PROFILE=x & {CREATE}",
    ],
)
def test_a_variable_of_another_command_is_not_its(line: str) -> None:
    found = command_in(line)
    assert found.match is not None and not found.variables


@pytest.mark.parametrize(
    "line",
    [
        f'AWS_PROFILE="$(choose)" {CREATE}',
        f"AWS_PROFILE=$CHOSEN {CREATE}",
        f"AWS_PROFILE+=x {CREATE}",
        f"AWS_PROFILE=staging; {CREATE}",
        f"if true; then export AWS_PROFILE=staging; fi; {CREATE}",
        f"test -e x && export AWS_PROFILE=staging; {CREATE}",
        f"declare -x AWS_PROFILE=staging; {CREATE}",
        f"for AWS_PROFILE in staging; do {CREATE}; done",
        f"echo staging | {{ read -r AWS_PROFILE; {CREATE}; }}",
        f"printf -v AWS_PROFILE staging; {CREATE}",
        f"choose() {{ export AWS_PROFILE=staging; }}; choose; {CREATE}",
        f"make_it() {{ {CREATE}; }}; AWS_PROFILE=staging make_it",
        f". ./choose.env; {CREATE}",
        f"builtin source choose.env; {CREATE}",
        f"X=1 . ./choose.env; {CREATE}",
        f'eval "$(cat choose.env)"; {CREATE}',
        f"env AWS_PROFILE=staging {CREATE}",
        f"env -u AWS_PROFILE {CREATE}",
        f"unset AWS_PROFILE; {CREATE}",
        f"AWS_CONFIG_FILE=./config {CREATE}",
        f"HOME=/elsewhere {CREATE}",
        f"AWS_PROFILE=$CHOSEN find . -name x -exec {CREATE} ';'",
    ],
)
def test_what_only_the_running_shell_knows_costs_the_command_its_inverse(line: str) -> None:
    found = command_in(line)
    assert found.match is None and found.cls in ("irreversible", "opaque")
    assert "account" in found.reason
