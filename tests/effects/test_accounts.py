"""An inverse of the catalog runs in the account that the effect ran in, or not at all: the real aws, two servers."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Cli
from support.claude import Claude
from support.moto import an_aws

CREATE = "aws iam create-user --user-name deploy"


class Aws:
    """The configuration of the aws program, with an account behind each profile."""

    def __init__(self, folder: Path, urls: dict[str, str]) -> None:
        self.folder, self.urls = folder, urls
        folder.mkdir(parents=True)
        self.configure()

    def configure(self, **urls: str) -> None:
        self.urls |= urls
        config, credentials = "", ""
        for name, url in self.urls.items():
            section = name if name == "default" else f"profile {name}"
            config += f"[{section}]\nregion = us-east-1\nendpoint_url = {url}\n"
            credentials += f"[{name}]\naws_access_key_id = {name}\naws_secret_access_key = {name * 3}\n"
        (self.folder / "config").write_text(config)
        (self.folder / "credentials").write_text(credentials)

    def users(self, profile: str) -> list[str]:
        """Who is in the account behind a profile."""
        return [user["UserName"] for user in iam(self.urls[profile]).list_users()["Users"]]


def iam(url: str) -> Any:
    """The users of an account, whatever the environment says."""
    import boto3

    key = {"aws_access_key_id": "k", "aws_secret_access_key": "k"}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        return boto3.session.Session(region_name="us-east-1", **key).client("iam", endpoint_url=url)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    with an_aws() as prod, an_aws() as staging:
        yield {"default": prod, "staging": staging}


@pytest.fixture
def aws(servers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """Two accounts. The default one has had the user `deploy` for years; `staging` has nobody."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    for url in servers.values():
        urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")).close()
    iam(servers["default"]).create_user(UserName="deploy")
    return Aws(tmp_path / "person/.aws", dict(servers))


def by_agent(project: Path, line: str, call: str = "c1") -> None:
    """One call of an agent, whose environment is ours."""
    claude = Claude(project)
    claude.before(call, line)
    subprocess.run(["sh", "-c", line], cwd=project, check=True, stdout=subprocess.DEVNULL)
    claude.after(call, line)


def test_an_inverse_runs_with_the_profile_that_the_agent_had(
    cli: Cli, project: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person who rolls back has another profile, and so does the default."""
    cli("checkpoint", "base")
    monkeypatch.setenv("AWS_PROFILE", "staging")
    by_agent(project, CREATE)
    assert (aws.users("default"), aws.users("staging")) == (["deploy"], ["deploy"])
    monkeypatch.delenv("AWS_PROFILE")
    assert "account: AWS_PROFILE=staging" in cli("rollback", "base", "--dry-run").out
    (action,) = cli("rollback", "base", "--dry-run", "--json").json["plan"]["actions"]
    assert action["account"] == "AWS_PROFILE=staging"
    assert "AWS_PROFILE=staging" in cli("effects").out
    done = cli("rollback", "base", "--yes", "--json").json["report"]
    assert [(one["state"], one["account"]) for one in done["effects"]] == [("undone", "AWS_PROFILE=staging")]
    assert (aws.users("default"), aws.users("staging")) == (["deploy"], [])


def test_a_profile_of_the_person_is_not_the_effects(
    cli: Cli, project: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent had no profile; the person has one when they roll back."""
    aws.configure(default=aws.urls["staging"], prod=aws.urls["default"])
    cli("checkpoint", "base")
    by_agent(project, CREATE)
    monkeypatch.setenv("AWS_PROFILE", "prod")
    cli("rollback", "base", "--yes")
    assert (aws.users("prod"), aws.users("default")) == (["deploy"], [])


@pytest.mark.parametrize(
    "line",
    [
        f"AWS_PROFILE=staging {CREATE}",
        f"export AWS_PROFILE=staging; {CREATE}",
        f"{CREATE} --profile staging",
    ],
)
def test_an_account_in_the_text_of_a_command_is_the_effects(cli: Cli, project: Path, aws: Aws, line: str) -> None:
    cli("checkpoint", "base")
    by_agent(project, line)
    assert aws.users("staging") == ["deploy"]
    cli("rollback", "base", "--yes")
    assert (aws.users("default"), aws.users("staging")) == (["deploy"], [])


@pytest.mark.parametrize(
    "line",
    [
        f'AWS_PROFILE="$(echo staging)" {CREATE}',
        f"if true; then export AWS_PROFILE=staging; fi; {CREATE}",
        f"choose() {{ export AWS_PROFILE=staging; }}; choose; {CREATE}",
        f". ./choose.env; {CREATE}",
    ],
)
def test_an_account_that_only_the_running_shell_knows_gives_no_inverse(
    cli: Cli, project: Path, aws: Aws, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is undone, in no account."""
    monkeypatch.setenv("AWS_PROFILE", "default")
    (project / "choose.env").write_text("export AWS_PROFILE=staging")
    cli("checkpoint", "base")
    by_agent(project, line)
    assert aws.users("staging") == ["deploy"]
    assert not any(effect["inverse"] for effect in cli("effects", "--json").json["effects"])
    cli("rollback", "base", "--yes", check=False)
    assert (aws.users("default"), aws.users("staging")) == (["deploy"], ["deploy"])


def test_a_variable_that_the_line_unsets_gives_no_inverse(
    cli: Cli, project: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.configure(default=aws.urls["staging"], prod=aws.urls["default"])
    monkeypatch.setenv("AWS_PROFILE", "prod")
    cli("checkpoint", "base")
    by_agent(project, f"unset AWS_PROFILE; {CREATE}")
    cli("rollback", "base", "--yes", check=False)
    assert (aws.users("prod"), aws.users("default")) == (["deploy"], ["deploy"])


def test_a_profile_that_leads_to_another_account_by_now_is_refused(
    cli: Cli, project: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("checkpoint", "base")
    monkeypatch.setenv("AWS_PROFILE", "staging")
    by_agent(project, CREATE)
    real = dict(aws.urls)
    aws.configure(staging=real["default"])
    refused = cli("rollback", "base", "--yes", check=False)
    assert ".aws/config" in refused.out and "another account" in refused.out and "Nothing was sent" in refused.out
    assert aws.users("default") == ["deploy"]
    aws.configure(staging=real["staging"])
    cli("rollback", "base", "--yes")
    assert (aws.users("default"), aws.users("staging")) == (["deploy"], [])


def test_a_profile_that_the_effect_did_not_use_may_change(
    cli: Cli, project: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("checkpoint", "base")
    monkeypatch.setenv("AWS_PROFILE", "staging")
    by_agent(project, CREATE)
    aws.configure(other=aws.urls["default"])
    cli("rollback", "base", "--yes")
    assert aws.users("staging") == []


def test_a_secret_variable_is_kept_by_its_fingerprint_and_needed_again(
    cli: Cli, project: Path, aws: Aws, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "wJalrXUtnFEMI0bPxRfiCYEXAMPLEKEYab12cd34"
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.urls["staging"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAQ7EXAMPLE0KEY123")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    cli("checkpoint", "base")
    by_agent(project, CREATE)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    missing = cli("rollback", "base", "--yes", check=False)
    assert "AWS_SECRET_ACCESS_KEY is not set" in missing.out
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret[::-1])
    other = cli("rollback", "base", "--yes", check=False)
    assert "AWS_SECRET_ACCESS_KEY has another value" in other.out
    assert aws.users("staging") == ["deploy"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    cli("rollback", "base", "--yes")
    assert (aws.users("default"), aws.users("staging")) == (["deploy"], [])
    for file in home.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


def test_an_account_that_changed_while_the_command_ran_gives_no_inverse(cli: Cli, project: Path, aws: Aws) -> None:
    """The line turns the profile over and back: before and after look the same, and the effect was elsewhere."""
    cli("checkpoint", "base")
    config = aws.folder / "config"
    turned = config.read_text().replace(aws.urls["default"], aws.urls["staging"])
    (project / "turned").write_text(turned)
    (project / "kept").write_text(config.read_text())
    by_agent(project, f"cp turned {config}; {CREATE}; cp kept {config}")
    assert aws.users("staging") == ["deploy"]
    (effect,) = (one for one in cli("effects", "--json").json["effects"] if "create-user" in one["description"])
    assert effect["inverse"] is None and "changed while the command ran" in effect["detail"]
    cli("rollback", "base", "--yes", "--files", check=False)
    assert aws.users("default") == ["deploy"]
