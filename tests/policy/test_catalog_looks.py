"""No inverse without a look: every rule of the catalog that has an inverse looks before the command and after it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from policy.reading import read as lines_of
from policy.reading import shipped
from reprieve.effects import looks
from reprieve.errors import Refused
from reprieve.policy import catalog as rules
from reprieve.policy.catalog import instantiate, load
from reprieve.policy.catalog.load import read
from reprieve.policy.catalog.model import BOTH, CommandMatch
from reprieve.policy.catalog.template import compared
from reprieve.policy.classes import IRREVERSIBLE

FILES = sorted(Path(rules.__file__).parent.glob("*.yaml"))
COMMANDS = [
    pytest.param(rule, id=rule["id"])
    for file in FILES
    for rule in read(str(file)).get("commands", ())  # type: ignore[attr-defined]
    if rule.get("inverse")
]
# how looks begin; none of these changes anything
READS = """
    aws ec2 describe-instances; aws ec2 describe-tags; aws iam get-user; aws iam list-attached-user-policies
    aws s3api list-buckets; az vm get-instance-view; brew list; crontab -l; docker container inspect
    docker image inspect; docker network inspect; dpkg-query -W; gcloud compute instances describe
    gcloud config get-value; gcloud projects describe; gh issue list; gh issue view; gh label list; gh pr list
    gh pr view; gh repo view; git config --get-regexp; git config --global --get; git config --local --get
    git config --local --get-all; git ls-remote; git rev-parse; git stash list; git symbolic-ref --quiet --short
    helm get manifest; helm history; kubectl config current-context; kubectl get; npm ls; pip freeze
    redis-cli -e --raw DUMP; redis-cli -e --raw PEXPIRETIME; systemctl show; terraform state show
    terraform workspace list; terraform workspace show; git log
"""


def is_read(run: list[str]) -> bool:
    known = [one.split() for line in READS.splitlines() for one in line.split(";") if one.strip()]
    return any(run[: len(words)] == words for words in known)


@pytest.mark.parametrize("rule", COMMANDS)
def test_a_rule_with_an_inverse_looks_before_and_after(rule: dict[str, Any]) -> None:
    """The look is a capture on both sides, so that "absent" and "as the agent left it" are things we saw."""
    found = [one for one in rule.get("capture", {}).values() if one.get("when") == "both"]
    assert found, "give it a look (a capture with `when: both`) or take its inverse away"
    for look in found:
        assert not look.get("optional"), "a look that fails for any reason is not a look at nothing: use `absent`"


@pytest.mark.parametrize("rule", COMMANDS)
def test_a_look_changes_nothing(rule: dict[str, Any]) -> None:
    for name, capture in rule["capture"].items():
        if capture["run"][:2] == ["git", "fetch"]:  # keeps what a push is about to overwrite, below refs/reprieve
            assert capture["run"][-1].split(":")[1].startswith("refs/reprieve/") and capture.get("when") is None
            continue
        assert is_read(capture["run"]), f"{name}: is {capture['run']} read-only? Then add it to the list"


def test_the_loaded_catalog_keeps_every_inverse_of_the_files() -> None:
    """Loading takes an inverse away from a rule without a look; the shipped ones have none such."""
    assert {rule.id for rule in shipped().commands if rule.inverse} == {param.id for param in COMMANDS}


def test_a_rule_that_lost_its_inverse_says_why() -> None:
    lost = (
        "aws.sqs.create-queue", "az.group.create", "cargo.yank", "docker.volume.create", "gcloud.services.enable",
        "gh.release.create", "helm.install", "kubectl.apply", "kubectl.create.namespace",
    )  # fmt: skip
    found = {rule.id: rule for rule in shipped().commands}
    for id in lost:
        assert found[id].cls == IRREVERSIBLE and not found[id].inverse and len(found[id].note) > 30


OWN = """
provider: mine
programs: {deploy: {}}
commands:
  - id: mine.deploy
    command: deploy
    args: [target]
    class: reversible
    note: deploys
    inverse: [[deploy, --remove, "{target}"]]
"""


def test_a_users_rule_without_a_look_has_no_inverse(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN)
    match = load([str(tmp_path)]).match_command(["deploy", "x"])
    assert match is not None and match.rule.cls == IRREVERSIBLE and not match.rule.inverse
    assert match.rule.note.startswith("deploys; ") and "look" in match.rule.note


# -- what the looks decide


def matched(*argv: str) -> CommandMatch:
    found = shipped().match_command(argv)
    assert found is not None
    return found


@pytest.mark.parametrize("param", COMMANDS)
def test_what_was_so_before_is_never_taken_away(param: dict[str, Any]) -> None:
    """Whatever the looks see, if they see the same before and after there is nothing to undo."""
    rule = next(rule for rule in shipped().commands if rule.id == param["id"])
    given = {name.rstrip("?+*"): "x" for name in rule.args or ()} | {f"opt.{o.lstrip('-')}": "x" for o in rule.values}
    item = tuple((given | {name: "x" for _, where in rule.where for name in re.compile(where).groupindex}).items())
    for value in ("", "x", "true", "running"):
        captured: dict[str, str | tuple[str, ...]] = {}
        for capture in rule.capture:
            seen = (value,) if capture.take == "lines" else value
            captured |= {f"0.{capture.name}": seen, f"0.{capture.name}.after": seen}
        match = CommandMatch(rule, (rule.program,), (), (item,))
        if rule.is_ambiguous:  # another pip may have run
            with pytest.raises(Refused, match="another"):
                instantiate(match, captured)
        else:
            assert not instantiate(match, captured).steps


def test_a_command_in_the_background_has_no_inverse() -> None:
    """It may end later than its line, so a look after the line does not show what it changed."""
    for line in ("redis-cli SET a b &", "(sleep 9; redis-cli SET a b) &", "redis-cli SET a b & wait"):
        (found,) = (one for one in lines_of(line).commands if one.rule == "redis.key")
        assert found.cls == IRREVERSIBLE and found.match is None
    assert lines_of("redis-cli SET a b").commands[0].match is not None


def test_of_several_things_only_those_that_changed_are_undone() -> None:
    match = matched("docker", "stop", "a", "b")
    seen = {"0.was": "false", "0.was.after": "false", "1.was": "true", "1.was.after": "false"}
    inverse = instantiate(match, seen)
    assert [step.argv for step in inverse.steps] == [("docker", "start", "b")]
    assert [look.capture.run[-1] for look in inverse.looks] == ["b"]


def test_a_look_that_fails_is_not_a_look_at_nothing() -> None:
    """`aws iam get-user` may fail because there is no such user, or because nobody is logged in."""
    (capture,) = (one for one in matched("aws", "iam", "create-user", "--user-name", "a").rule.capture)
    missing = b"An error occurred (NoSuchEntity) when calling the GetUser operation"
    assert rules.read_capture(capture, b"", 255, missing) == ""
    with pytest.raises(Refused):
        rules.read_capture(capture, b"", 255, b"An error occurred (ExpiredToken) when calling the GetUser operation")


def test_a_value_that_is_only_compared_is_kept_as_a_hash() -> None:
    """What `helm get manifest` prints holds secrets of the cluster."""
    upgrade = matched("helm", "upgrade", "web", "./chart").rule
    assert compared(upgrade) == {"manifest"}
    assert compared(matched("redis-cli", "SET", "a", "b").rule) == frozenset()
    secret = looks.frozen(["helm"], {}, "password: hunter2", "password: hunter3")
    assert "hunter" not in str(secret)
    assert all(rule.capture for rule in shipped().commands if any(one.when == BOTH for one in rule.capture))


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (("a", "b", "c"), looks.LEFT),
        (("a", "b", "c", "a person's"), looks.LEFT),
        (("a", "gone"), looks.BEFORE),
        (("a", "gone", "a person's"), looks.BEFORE),
        (("a", "b", "gone"), looks.OTHER),
        (("a", "b"), looks.OTHER),
    ],
)
def test_a_list_is_compared_by_the_lines_that_the_command_changed(now: tuple[str, ...], state: str) -> None:
    look = looks.frozen(["x"], {"take": "lines"}, ("a", "gone"), ("a", "b", "c"))
    assert looks.compare([look], lambda _: now)[0] == state
