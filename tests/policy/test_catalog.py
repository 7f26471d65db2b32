"""The rule catalog: checked to the field, fresh, extendable by the user, and its templates put values in as data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from policy.reading import shipped
from reprieve.errors import Misconfigured, Refused
from reprieve.policy import catalog as rules
from reprieve.policy.catalog import Capture, captures, instantiate, instantiate_request, load, read_capture
from reprieve.policy.catalog.compile import compiled
from reprieve.policy.catalog.load import COMPILED
from reprieve.policy.catalog.model import BOTH, by_id
from reprieve.policy.classes import CLASSES, COMPENSABLE, HOLDABLE, IRREVERSIBLE, OPAQUE, READ, REVERSIBLE, rank

HERE = Path(rules.__file__).parent


def test_the_compiled_catalog_is_fresh() -> None:
    fresh = compiled() == (HERE / COMPILED).read_text(encoding="utf-8")
    assert fresh, "make it anew: python -m reprieve.policy.catalog.compile"


def test_there_are_at_least_forty_commands_with_an_inverse() -> None:
    with_inverse = [rule for rule in shipped().commands if rule.inverse]
    assert len(with_inverse) >= 40
    assert {rule.program for rule in with_inverse} >= {
        "git", "gh", "docker", "kubectl", "aws", "gcloud", "az", "terraform", "helm", "npm", "pip", "apt-get",
        "systemctl",
        "crontab", "redis-cli",
    }  # fmt: skip
    assert sum(1 for rule in with_inverse if rule.tested) >= 20


def test_ids_are_unique_and_classes_known() -> None:
    named = [rule.id for rule in shipped().commands if rule.cls != READ] + [rule.id for rule in shipped().requests]
    assert len(named) == len(set(named))
    assert {rule.cls for rule in (*shipped().commands, *shipped().requests)} <= set(CLASSES)  # type: ignore[attr-defined]


def test_s05_no_inverse_is_text_for_a_shell() -> None:
    for rule in shipped().commands:
        for argv in [step.argv for step in rule.inverse] + [capture.run for capture in rule.capture]:
            assert isinstance(argv, tuple) and all(isinstance(word, str) for word in argv)
            assert argv[0] not in ("sh", "bash", "env", "eval", "xargs", "sudo"), rule.id


def test_what_a_rule_uses_it_also_captures() -> None:
    """Every {name} of an inverse is an argument, an option or a capture of the same rule."""
    for rule in shipped().commands:
        known = {arg.rstrip("?+*") for arg in rule.args or ()} | {capture.name for capture in rule.capture}
        known |= {f"{capture.name}.after" for capture in rule.capture if capture.when == BOTH}
        known |= {f"opt.{name.lstrip('-')}" for name in rule.values}
        known |= {name for _, pattern in rule.where for name in re.compile(pattern).groupindex}
        for step in rule.inverse:
            for word in [*step.argv, step.stdin]:
                for name in re.findall(r"\{([a-z_][\w.-]*)\*?\}", word):
                    parts = name.split("-") if name not in known else [name]
                    assert set(parts) <= known, f"{rule.id}: {name}"
            assert {name for name, _ in step.when} <= known, rule.id


def test_every_program_with_an_inverse_declares_what_selects_its_account() -> None:
    """An inverse in another account does harm there; a program that has none says why."""
    programs = {rule.program for rule in shipped().commands if rule.inverse}
    declared = {program.name for program in shipped().programs if program.account is not None}
    assert programs <= declared, f"declare account: {', '.join(sorted(programs - declared))}"


def test_no_account_is_chosen_by_a_variable_that_changes_programs() -> None:
    """Such a variable is never set for an inverse."""
    never = ("LD_", "DYLD_", "PYTHON", "GIT_", "PERL", "RUBY", "NODE_", "JAVA_", "BASH_", "PATH")
    for program in shipped().programs:
        for name in (*program.account.variables, *program.account.secrets) if program.account else ():
            assert not name.startswith(never), name


def test_requests_stay_at_their_origin() -> None:
    for rule in shipped().requests:
        for path in [rule.inverse.path if rule.inverse else "/", rule.verify or "/", rule.before or "/"]:
            assert path.startswith("/") and not path.startswith("//"), rule.id


# -- matching


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        ("git push origin main", "git.push.refs"),
        ("git -C x push -f origin main", "git.push.refs"),
        ("git push origin :main", "git.push.refs"),
        ("git push origin HEAD", "git.push.head"),
        ("git push --mirror origin main", "git.push.mirror"),
        ("git push origin +main v1 a:b", "git.push.refs"),
        ("git push origin refs/tags/v1", "git.push.refs"),
        ("git push -d origin v1", "git.push.delete"),
        ("git push --tags", "git.push.tags"),
        ("git push origin main --tags", "git.push.tags"),
        ("git push --all origin", "git.push.all"),
        ("git push origin main HEAD", "git.push"),
        ("git push origin refs/*:refs/*", "git.push"),
        ("git push origin", "git.push"),
        ("git push", "git.push"),
        ("docker stop -t 5 web", "docker.stop"),
        ("docker --context prod stop web", "docker.stop"),
        ("kubectl -n prod scale deploy/web --replicas=3", "kubectl.scale"),
        ("kubectl scale deploy/web --replicas 3 -n prod", "kubectl.scale"),
        ("/usr/bin/pip3 install requests", "pip.install"),
        ("pip install -e .", "pip.install.code"),
        ("redis-cli -n 2 SET a b", "redis.key"),
        ("aws --region x s3 mb s3://b", "aws.s3.mb"),
    ],
)
def test_a_command_finds_its_rule(argv: str, rule: str) -> None:
    match = shipped().match_command(argv.split())
    assert match is not None and match.rule.id == rule


def test_bad_case_52_an_option_that_the_rule_does_not_know_costs_it_its_inverse() -> None:
    """`--receive-pack=…` runs a program; a rule that does not know an option does not vouch for the command."""
    match = shipped().match_command(["git", "push", "--receive-pack=evil", "origin", "main"])
    assert match is not None and match.rule.cls == IRREVERSIBLE and not match.rule.inverse
    odd = shipped().match_command(["docker", "stop", "--odd", "web"])
    assert odd is not None and odd.rule.cls == IRREVERSIBLE and not odd.rule.inverse
    assert "--odd" in odd.rule.note


def test_an_argument_that_is_not_known_costs_it_its_inverse() -> None:
    match = shipped().match_command(["docker", "stop", None])
    assert match is not None and match.rule.cls == IRREVERSIBLE and not match.rule.inverse
    assert shipped().match_command([None, "stop"]) is None
    assert shipped().match_command([]) is None


def test_options_that_say_where_are_carried_to_the_inverse() -> None:
    match = shipped().match_command(["kubectl", "--context", "c", "scale", "deploy/web", "--replicas=0", "-n", "prod"])
    assert match is not None
    (capture,) = captures(match)
    assert capture.run[:3] == ("kubectl", "--context", "c") and capture.run[-2:] == ("-n", "prod")
    (step,) = instantiate(match, {"0.old": "3", "0.old.after": "0"}).steps
    assert step.argv == ("kubectl", "--context", "c", "scale", "deploy/web", "--replicas=3", "-n", "prod")


def test_a_launcher_is_part_of_the_inverse() -> None:
    match = shipped().match_command(["systemctl", "enable", "x"], launcher=("sudo", "-n"))
    assert match is not None
    inverse = instantiate(match, {"0.was": "disabled", "0.was.after": "enabled"})
    assert inverse.steps[0].argv == ("sudo", "-n", "systemctl", "disable", "x")
    assert inverse.looks[0].capture.run[:3] == ("sudo", "-n", "systemctl")


def test_the_inverse_of_several_things_begins_with_the_last() -> None:
    match = shipped().match_command(["docker", "start", "a", "b"])
    assert match is not None
    inverse = instantiate(match, {"0.was": "false", "1.was": "false", "0.was.after": "true", "1.was.after": "true"})
    assert [step.argv[-1] for step in inverse.steps] == ["b", "a"]


@pytest.mark.parametrize("value", ["--upload-pack=evil", "-oProxyCommand=evil", "-rf"])
def test_bad_case_52_a_captured_value_is_never_an_option(value: str) -> None:
    match = shipped().match_command(["git", "remote", "set-url", "origin", "https://x.example"])
    assert match is not None
    with pytest.raises(Refused, match="option"):
        instantiate(match, {"0.old": value, "0.old.after": "https://x.example"})


@pytest.mark.parametrize("value", ["a; rm -rf /", "$(rm x)", "`rm x`", "a\nb", "{name}", "{opt.x}", "a b", "'", "*"])
def test_s05_a_captured_value_is_one_word_whatever_it_holds(value: str) -> None:
    match = shipped().match_command(["git", "remote", "set-url", "origin", "https://x.example"])
    assert match is not None
    (step,) = instantiate(match, {"0.old": value, "0.old.after": "https://x.example"}).steps
    assert step.argv == ("git", "remote", "set-url", "origin", value)


def test_a_value_that_was_not_captured_is_no_inverse() -> None:
    match = shipped().match_command(["git", "remote", "set-url", "origin", "https://x.example"])
    assert match is not None
    with pytest.raises(Refused, match="not known"):
        instantiate(match, {})
    plain = shipped().match_command(["docker", "rm", "x"])
    assert plain is not None
    with pytest.raises(Refused, match="no command takes back"):
        instantiate(plain, {})


def test_p_12_a_capture_that_fails_means_no_undo_unless_it_may_be_missing() -> None:
    capture = Capture("old", ("x",))
    with pytest.raises(Refused):
        read_capture(capture, b"", 1)
    assert read_capture(capture.replace(is_optional=True), b"junk", 1) == ""
    assert read_capture(capture, b"a\n\n", 0) == "a\n"
    assert read_capture(capture.replace(take="raw"), b"a\n", 0) == "a\n"
    assert read_capture(capture.replace(take="word"), b" a b\nc", 0) == "a"
    assert read_capture(capture.replace(take="lines"), b"a\n\n b \n", 0) == ("a", "b")
    assert read_capture(capture.replace(json="$[0].n"), b'[{"n": 7}]', 0) == "7"
    assert read_capture(capture, b"\xff\n", 0) == "\udcff"
    assert read_capture(capture.replace(take="raw", drop=r"^\s+uid:"), b"a: 1\n  uid: 5\nb: 2\n", 0) == "a: 1\nb: 2\n"
    with pytest.raises(Refused):
        read_capture(capture.replace(json="$.n"), b"<html>", 0)


# -- requests


@pytest.mark.parametrize(
    ("method", "url", "rule", "cls"),
    [
        ("POST", "https://api.stripe.com/v1/charges", "stripe.charge.create", COMPENSABLE),
        ("POST", "https://api.stripe.com/v1/refunds", "stripe.refund.create", IRREVERSIBLE),
        ("POST", "https://slack.com/api/chat.postMessage", "slack.message.post", COMPENSABLE),
        ("POST", "https://x.slack.com/api/chat.delete", "slack.message.delete", IRREVERSIBLE),
        ("POST", "https://api.sendgrid.com/v3/mail/send", "sendgrid.send", HOLDABLE),
        ("POST", "https://api.mailgun.net/v3/x.example/messages", "mailgun.send", HOLDABLE),
        ("POST", "https://api.notion.com/v1/search", "notion.query", READ),
        ("POST", "https://api.notion.com/v1/pages", "notion.page.create", REVERSIBLE),
        ("POST", "https://x.atlassian.net/rest/api/3/issue", "jira.issue.create", COMPENSABLE),
        ("DELETE", "https://api.github.com/repos/o/r", "github.repo.delete", IRREVERSIBLE),
        ("DELETE", "https://www.googleapis.com/drive/v3/files/x", "google.drive.file.delete", IRREVERSIBLE),
    ],
)
def test_a_request_finds_its_rule(method: str, url: str, rule: str, cls: str) -> None:
    match = shipped().match_http(method, url)
    assert match is not None and (match.rule.id, match.rule.cls) == (rule, cls)
    assert shipped().match_http(method.lower(), url + "?a=b") == match


@pytest.mark.parametrize("host", ["api.linear.app", "api.github.com"])
def test_bad_case_42_a_query_and_a_mutation_are_not_told_apart_by_their_address(host: str) -> None:
    match = shipped().match_http("POST", f"https://{host}/graphql")
    assert match is not None and match.rule.cls == OPAQUE


@pytest.mark.parametrize(
    "url",
    ["https://api.stripe.com.evil.example/v1/charges", "https://evil.example/v1/charges", "https://slack.com.evil.example/api/chat.postMessage",
     "https://evilslack.com/api/chat.postMessage", "https://api.stripe.com/v1/charges/x", "ftp://api.stripe.com/v1/charges",
     "https://[::1/v1/charges", "https://.slack.com/api/chat.delete"],
)  # fmt: skip
def test_a_host_that_only_looks_like_a_providers_has_no_rule(url: str) -> None:
    assert shipped().match_http("POST", url) is None


def test_bad_case_60_the_inverse_of_a_charge_is_a_refund_with_its_id() -> None:
    match = shipped().match_http("POST", "https://api.stripe.com/v1/charges")
    assert match is not None
    undo = instantiate_request(match, response={"id": "ch_1", "amount": 5})
    assert (undo.method, undo.url, undo.form) == ("POST", "https://api.stripe.com/v1/refunds", (("charge", "ch_1"),))
    assert undo.idempotency == "Idempotency-Key"
    with pytest.raises(Refused):
        instantiate_request(match, response={})


@pytest.mark.parametrize("value", ["../../users/1", "a/b", "x?admin=1", "x#y", "%2e%2e", "a b", "é"])
def test_s19_a_value_in_a_path_stays_one_segment(value: str) -> None:
    match = shipped().match_http("POST", "https://api.stripe.com/v1/customers")
    assert match is not None
    url = instantiate_request(match, response={"id": value}).url
    assert url.startswith("https://api.stripe.com/v1/customers/")
    assert not set(url.removeprefix("https://api.stripe.com/v1/customers/")) & set("/?# ")


@pytest.mark.parametrize("value", [".", "..", "", None, {"a": 1}])
def test_s19_a_value_that_is_no_segment_is_refused(value: object) -> None:
    match = shipped().match_http("POST", "https://api.stripe.com/v1/customers")
    assert match is not None
    with pytest.raises(Refused):
        instantiate_request(match, response={"id": value})


def test_values_in_a_body_keep_their_type() -> None:
    match = shipped().match_http("DELETE", "https://api.notion.com/v1/blocks/b1")
    assert match is not None
    assert instantiate_request(match).json == {"in_trash": False}
    update = shipped().match_http("PUT", "https://www.googleapis.com/calendar/v3/calendars/c/events/e")
    assert update is not None
    assert instantiate_request(update, before={"summary": "x", "n": 1}).json == {"summary": "x", "n": 1}


# -- the user's own rules

OWN = """
provider: mine
programs:
  deploy: {reads: [status]}
commands:
  - id: mine.deploy
    command: deploy
    args: [target]
    class: compensable
    capture:
      old: {run: [deploy, status, "{target}"], when: both}
    inverse:
      - [deploy, "{target}", --to, "{old}"]
"""


def test_the_user_may_add_rules_and_theirs_come_first(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN)
    (tmp_path / "more.json").write_text(json.dumps({
        "provider": "more",
        "requests": [{"id": "more.stripe", "host": ["api.stripe.com"], "method": ["POST"], "path": "/v1/charges",
        "class": "irreversible"}],
    }))  # fmt: skip
    catalog = load([str(tmp_path), str(tmp_path / "missing")])
    match = catalog.match_command(["deploy", "prod"])
    assert match is not None and match.rule.id == "mine.deploy"
    assert instantiate(match, {"0.old": "v1", "0.old.after": "v2"}).steps[0].argv == ("deploy", "prod", "--to", "v1")
    stripe = catalog.match_http("POST", "https://api.stripe.com/v1/charges")
    assert stripe is not None and stripe.rule.id == "more.stripe"


def test_s24_rules_in_the_tree_are_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("catalog", ".reprieve", "policy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.yaml").write_text(OWN)
    (tmp_path / "mine.yaml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert load().match_command(["deploy", "prod"]) is None


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (("class: compensable", "class: harmless"), "commands[0].class: 'harmless' is not one of read, reversible"),
        (("class: compensable", "clas: compensable"), "commands[0].clas: is not a field"),
        (("    class: compensable\n", ""), "commands[0]: class is missing"),
        (("id: mine.deploy", "id: 5"), "commands[0].id: must be a text"),
        (('[deploy, "{target}", --to, "{old}"]', "deploy --to x"), "commands[0].inverse[0]: must be a mapping"),
        (('[deploy, "{target}", --to, "{old}"]', '["{target}", x]'),
        "commands[0].inverse[0]: must begin with the name of a program"),
        (('[deploy, "{target}", --to, "{old}"]', "[deploy, 5]"), "commands[0].inverse[0]: must be a list of texts"),
        (('run: [deploy, status, "{target}"], when: both', "run: [x], when: later"),
        "commands[0].capture.old.when: 'later' is not one of before"),
        (("args: [target]", "where: {target: '('}"), "commands[0].where.target: '(' is not a pattern"),
        (("args: [target]", "window: soon"), "commands[0].window: 'soon' is not a time"),
        (("args: [target]", "tested: maybe"), "commands[0].tested: must be true or false"),
        (("provider: mine", "provider: [mine]"), "provider: must be a text"),
        (("commands:", "rules:"), "rules: is not a field"),
        (("reads: [status]", "account: {}"), "programs.deploy.account: needs variables"),
        (("reads: [status]", "account: {none: x, variables: [Y]}"), "programs.deploy.account: needs variables"),
        (("reads: [status]", "account: {files: [{path: x, take: y}]}"), "files[0].take: 'y' is not one of text"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(tmp_path: Path, change: tuple[str, str], where: str) -> None:
    assert change[0] in OWN
    (tmp_path / "mine.yaml").write_text(OWN.replace(*change))
    with pytest.raises(Misconfigured) as caught:
        load([str(tmp_path)])
    assert where in caught.value.message
    assert "mine.yaml" in caught.value.message


@pytest.mark.parametrize("text", ["[", "- a", "5", "", "a: b: c", "!!python/object/apply:os.system ['true']"])
def test_what_is_no_catalog_is_refused_and_never_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(Misconfigured):
        load([str(tmp_path)])


def test_the_catalog_is_shipped_with_the_package() -> None:
    assert {path.name for path in HERE.glob("*.yaml")} >= {"git.yaml", "stripe.yaml", "github.yaml"}
    assert by_id(shipped())["git.push.refs"].tested


def test_loading_reads_no_yaml() -> None:
    """It may stand before every shell command of an agent."""
    script = "import sys; from reprieve.policy.catalog import load; load(); print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_rules_never_claim_less_than_their_inverse_does() -> None:
    """A rule without an inverse that is not about files is no better than irreversible, unless nothing is lost."""
    for rule in shipped().commands:
        if rank(REVERSIBLE) < rank(rule.cls) < rank(HOLDABLE) and not rule.inverse and not rule.files:
            assert rule.cls == COMPENSABLE, rule.id
