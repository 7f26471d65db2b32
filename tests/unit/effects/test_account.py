"""The account of a command: what the shipped catalog declares for each program is kept, compared and set again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from policy.reading import shipped
from reprieve.effects.account import Given, account_of, differs, environment_of, words_of
from reprieve.errors import Refused

Json = dict[str, object]


def sign(secret: bytes) -> str:
    return sha256(b"key" + secret).hexdigest()


class Person:
    """Somebody's home folder and environment, in which programs are about to run."""

    def __init__(self, home: Path) -> None:
        self.home, self.environ = home, {"HOME": str(home)}

    def write(self, path: str, content: object) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    def account(self, line: str, *, trees: tuple[str, ...] = (), given: Mapping[str, str] | None = None) -> Json:
        match = shipped().match_command(line.split())
        assert match is not None and match.rule.inverse, line
        words = (*match.prefix, *match.carried)
        return account_of(
            match.account,
            Given(words, match.rule.sub, str(self.home), tuple((given or {}).items())),
            environ=self.environ,
            sign=sign,
            is_secret=lambda name, value: "SECRET" in name or "@" in value,
            trees=trees,
        )

    def differs(self, kept: Json) -> str:
        return differs(kept, environ=self.environ, sign=sign)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("aws iam create-user --user-name x", "AWS_PROFILE", "staging"),
        ("aws iam create-user --user-name x", "AWS_ENDPOINT_URL_IAM", "http://127.0.0.1:1"),
        ("gcloud compute instances stop x", "CLOUDSDK_CORE_PROJECT", "staging"),
        ("az vm stop --name x", "AZURE_DEFAULTS_GROUP", "staging"),
        ("terraform taint x", "TF_WORKSPACE", "staging"),
        ("docker pause web", "DOCKER_HOST", "tcp://10.0.0.1:2375"),
        ("kubectl cordon n1", "KUBECONFIG", "/srv/staging"),
        ("helm rollback web 1", "HELM_NAMESPACE", "staging"),
        ("gh issue close 1", "GH_HOST", "git.example.com"),
        ("npm install -g x", "npm_config_prefix", "/opt/node"),
        ("pip install x", "PIP_TARGET", "/opt/x"),
    ],
)
def test_what_a_variable_selects_is_kept_and_set_again(person: Person, line: str, name: str, value: str) -> None:
    person.environ[name] = value
    kept = person.account(line)
    assert f"{name}={value}" in words_of({"account": kept})
    person.environ[name] = "another"
    assert person.differs(kept) == "" and environment_of(kept, person.environ)[name] == value
    del person.environ[name]
    without = person.account(line)
    person.environ[name] = value
    assert person.differs(without) == "" and name not in environment_of(without, person.environ)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("aws iam create-user --user-name x", "AWS_SESSION_TOKEN"),
        ("aws iam create-user --user-name x", "AWS_SOMETHING_NEW"),
        ("gcloud compute instances stop x", "CLOUDSDK_AUTH_ACCESS_TOKEN"),
        ("az vm stop --name x", "AZURE_CLIENT_SECRET"),
        ("terraform taint x", "TF_TOKEN_app_terraform_io"),
        ("terraform taint x", "ARM_CLIENT_SECRET"),
        ("kubectl cordon n1", "AWS_SESSION_TOKEN"),
        ("helm rollback web 1", "HELM_KUBETOKEN"),
        ("gh issue close 1", "GH_TOKEN"),
        ("redis-cli set a b", "REDISCLI_AUTH"),
    ],
)
def test_a_secret_is_kept_by_its_fingerprint_and_must_be_the_same(person: Person, line: str, name: str) -> None:
    person.environ[name] = "hunter2"
    kept = person.account(line)
    assert "hunter2" not in json.dumps(kept) and name in words_of({"account": kept})
    assert person.differs(kept) == "" and environment_of(kept, person.environ)[name] == "hunter2"
    person.environ[name] = "hunter3"
    assert person.differs(kept).startswith(f"{name} has another value")
    del person.environ[name]
    assert person.differs(kept).startswith(f"{name} is not set")
    with pytest.raises(Refused, match=f"the command line sets {name}"):
        person.account(line, given={name: "hunter2"})


def test_what_selects_no_account_is_not_part_of_it(person: Person) -> None:
    person.environ |= {"AWS_PAGER": "less", "AWS_CLI_AUTO_PROMPT": "on", "EDITOR": "vi", "AWS_REGION": ""}
    assert words_of({"account": person.account("aws s3 mb s3://x")}) == ""


def test_a_password_in_a_variable_that_is_no_secret_by_its_name_is_not_kept(person: Person) -> None:
    person.environ["DOCKER_HOST"] = "tcp://me:hunter2@10.0.0.1"
    assert "hunter2" not in json.dumps(person.account("docker pause web"))


KUBE = {
    "current-context": "staging",
    "contexts": [
        {"name": "staging", "context": {"cluster": "s", "user": "me"}},
        {"name": "prod", "context": {"cluster": "p", "user": "me"}},
    ],
    "clusters": [
        {"name": "s", "cluster": {"server": "https://s"}},
        {"name": "p", "cluster": {"server": "https://p"}},
    ],
    "users": [{"name": "me", "user": {}}],
}
AZURE = {"subscriptions": [{"id": "1", "name": "staging", "isDefault": True}, {"id": "2", "name": "prod"}]}
AZURE_NOW = {"subscriptions": [{"id": "1", "name": "staging"}, {"id": "2", "name": "prod", "isDefault": True}]}
META = f".docker/contexts/meta/{sha256(b'staging').hexdigest()}/meta.json"


@pytest.mark.parametrize(
    ("line", "file", "then", "now"),
    [
        ("kubectl cordon n1", ".kube/config", KUBE, {**KUBE, "current-context": "prod"}),
        ("kubectl cordon n1", ".kube/config", KUBE, {**KUBE, "clusters": KUBE["clusters"][1:]}),
        ("helm rollback web 1", ".kube/config", KUBE, {**KUBE, "current-context": "prod"}),
        ("docker pause web", ".docker/config.json", {"currentContext": "staging"}, {"currentContext": "prod"}),
        ("docker --context staging pause web", META, {"Host": "tcp://s"}, {"Host": "tcp://p"}),
        ("gcloud compute instances stop x", ".config/gcloud/active_config", "staging", "prod"),
        ("gcloud compute instances stop x", ".config/gcloud/configurations/config_default", "project=s", "project=p"),
        ("az vm stop --name x", ".azure/azureProfile.json", AZURE, AZURE_NOW),
        ("az vm stop --name x", ".azure/config", "[defaults]\ngroup=s", "[defaults]\ngroup=p"),
        ("aws s3 mb s3://x", ".aws/config", "[default]\nregion=a", "[default]\nregion=b"),
        ("aws s3 mb s3://x", ".aws/credentials", "[default]\naws_access_key_id=a", "[default]\naws_access_key_id=b"),
        ("terraform taint x", ".terraform/environment", "staging", "prod"),
        ("gh issue close 1", ".config/gh/hosts.yml", "github.com: {user: a}", "github.com: {user: b}"),
        ("npm install -g x", ".npmrc", "registry=a", "registry=b"),
    ],
)
def test_a_file_that_leads_elsewhere_by_now_is_noticed(
    person: Person, line: str, file: str, then: object, now: object
) -> None:
    person.write(file, then)
    kept = person.account(line)
    assert person.differs(kept) == ""
    person.write(file, now)
    assert person.differs(kept).startswith(f"{person.home / file}"[: len(str(person.home))])
    assert "another account" in person.differs(kept)
    person.write(file, then)
    assert person.differs(kept) == ""


@pytest.mark.parametrize(
    ("line", "file", "then", "now"),
    [
        ("kubectl cordon n1", ".kube/config", KUBE, {**KUBE, "contexts": [*KUBE["contexts"], {"name": "new"}]}),
        ("kubectl --context staging cordon n1", ".kube/config", KUBE, {**KUBE, "current-context": "prod"}),
        ("docker pause web", ".docker/config.json", {"currentContext": "s"}, {"currentContext": "s", "auths": {}}),
        ("docker --context s pause web", ".docker/config.json", {"currentContext": "s"}, {"currentContext": "p"}),
        ("az vm stop --name x --subscription prod", ".azure/azureProfile.json", AZURE, AZURE_NOW),
        ("aws s3 mb s3://x", ".aws/config", "[default]\nregion=a", "[default]\nregion=a\n[profile b]\nregion=b"),
        ("aws s3 mb s3://x --profile b", ".aws/config", "[profile b]\nx=1", "[default]\nx=2\n[profile b]\nx=1"),
    ],
)
def test_a_part_of_a_file_that_leads_elsewhere_may_change(
    person: Person, line: str, file: str, then: object, now: object
) -> None:
    person.write(file, then)
    kept = person.account(line)
    person.write(file, now)
    assert person.differs(kept) == ""


def test_a_profile_that_another_one_is_built_on_counts(person: Person) -> None:
    person.write(".aws/config", "[profile b]\nsource_profile = base\n[profile base]\nrole_arn = 1\n")
    kept = person.account("aws s3 mb s3://x --profile b")
    person.write(".aws/config", "[profile b]\nsource_profile = base\n[profile base]\nrole_arn = 2\n")
    assert "another account" in person.differs(kept)


def test_the_plan_names_the_context(person: Person) -> None:
    person.write(".kube/config", KUBE)
    kept = person.account("kubectl cordon n1")
    assert words_of({"account": kept}) == "~/.kube/config: staging"
    person.write(".kube/config", {**KUBE, "current-context": "prod"})
    assert "it chose staging then, and prod now" in person.differs(kept)


def test_the_first_of_several_kubeconfigs_counts(person: Person) -> None:
    person.write("a", {"current-context": "staging"})
    person.write("b", KUBE)
    person.environ["KUBECONFIG"] = f"{person.home}/a:{person.home}/b"
    kept = person.account("kubectl cordon n1")
    assert "staging" in words_of({"account": kept}).rpartition(":")[2]
    person.write("a", {"current-context": "prod"})
    assert "another account" in person.differs(kept)


def test_a_command_that_switches_the_account_is_undone_where_the_file_is(person: Person) -> None:
    """It changes the very file that is compared for others."""
    person.write(".kube/config", KUBE)
    kept = person.account("kubectl config use-context prod")
    person.write(".kube/config", {**KUBE, "current-context": "prod"})
    assert person.differs(kept) == ""


def test_a_kubeconfig_in_the_workspace_gives_no_inverse(person: Person) -> None:
    """It can name a program, and an agent can write there."""
    person.environ["KUBECONFIG"] = str(person.home / "project/kubeconfig")
    with pytest.raises(Refused, match="KUBECONFIG names a file in the workspace"):
        person.account("kubectl cordon n1", trees=(str(person.home / "project"),))
    del person.environ["KUBECONFIG"]
    person.account("kubectl cordon n1", trees=(str(person.home),))


def test_git_with_a_repository_of_its_environment_gives_no_inverse(person: Person) -> None:
    person.environ["GIT_DIR"] = "/elsewhere"
    with pytest.raises(Refused, match="GIT_DIR is set"):
        person.account("git push origin main")


def test_a_command_of_another_user_gives_no_inverse(person: Person) -> None:
    match = shipped().match_command(["docker", "pause", "web"], launcher=("sudo",))
    assert match is not None
    given = Given(match.prefix[1:], match.rule.sub, "/", (), ("sudo",))
    with pytest.raises(Refused, match="another user"):
        account_of(match.account, given, environ=person.environ, sign=sign, is_secret=lambda name, value: False)


def test_a_program_without_a_declaration_gives_no_inverse(person: Person) -> None:
    given = Given(("deploy",), ("release",), "/")
    with pytest.raises(Refused, match=r"programs\.deploy\.account"):
        account_of(None, given, environ=person.environ, sign=sign, is_secret=lambda name, value: False)
