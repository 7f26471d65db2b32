"""`reprieve compensate` and effects in `rollback`: once, newest first, and nothing is claimed that did not happen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support import Cli
from support.api import Api


def http(cli: Cli, api: Api, undo: str, *more: str, method: str = "POST", env: dict[str, str] | None = None) -> str:
    id: str = cli(
        "record", "http", "--method", "POST", "--url", api.url + "/charges", "--undo-method", method,
        "--undo-url", api.url + undo, "--resource", undo, *more, "--json", env=env,
    ).json["effect"]["id"]  # fmt: skip
    return id


@pytest.fixture
def base(cli: Cli) -> None:
    cli("checkpoint", "base")


def test_without_execute_nothing_is_sent(cli: Cli, api: Api, base: None) -> None:
    http(cli, api, "/refunds")
    result = cli("compensate")
    assert f"POST {api.url}/refunds" in result.out and "Nothing was sent" in result.out
    assert not api.changes()


def test_effects_need_a_yes_and_files_do_not(cli: Cli, api: Api, project: Path, base: None) -> None:
    """Without a terminal files are rolled back at once; effects are left, named, and told by the exit code."""
    http(cli, api, "/refunds")
    (project / "README.md").write_text("broken")
    result = cli("rollback", "--json", check=False)
    assert result.code == 6
    assert [e["state"] for e in result.json["report"]["effects"]] == ["pending"]
    assert (project / "README.md").read_text().startswith("# A project") and not api.changes()
    assert cli("compensate", "base", "--execute", check=False).code == 5
    assert not api.changes()


def test_wb_13_bad_case_2_e02_p_33_running_it_twice_sends_it_once(cli: Cli, api: Api, base: None) -> None:
    http(cli, api, "/refunds")
    assert cli("compensate", "--execute", "--yes", "--json").json["effects"][0]["state"] == "undone"
    assert cli("compensate", "--execute", "--yes").out == "No effects to undo\n"
    cli("rollback", "base", "--yes")
    cli("rollback", "base", "--yes")
    assert len(api.refunds) == 1


def test_wb_12_a_rollback_of_files_alone_keeps_the_inverse(cli: Cli, api: Api, project: Path, base: None) -> None:
    http(cli, api, "/refunds")
    (project / "README.md").write_text("broken")
    cli("rollback", "--files", "--yes")
    cli("checkpoint", "later")
    assert len(cli("effects", "--pending", "--json").json["effects"]) == 1
    cli("rollback", "base", "--yes")
    assert len(api.refunds) == 1


def test_wb_14_p_24_what_was_kept_is_never_undone(cli: Cli, api: Api, base: None) -> None:
    kept = http(cli, api, "/refunds")
    cli("keep", kept)
    http(cli, api, "/things", "--undo-json", "{}")
    cli("rollback", "base", "--yes")
    assert not api.refunds and len(api.sent("POST", "/things")) == 1


def test_wb_14_an_effect_before_the_checkpoint_stays(cli: Cli, api: Api, base: None) -> None:
    http(cli, api, "/refunds")
    cli("checkpoint", "later")
    cli("rollback", "later", "--yes")
    cli("compensate", "--execute", "--yes")
    assert not api.refunds


def test_wb_28_headers_come_by_reference_and_forms_are_forms(cli: Cli, api: Api, base: None) -> None:
    token = {"TOKEN": "right"}
    http(
        cli, api, "/private/refunds", "--undo-form", "charge=ch_1", "--undo-form", "reason=a b",
        "--undo-header", "Authorization: Bearer env:TOKEN", env=token,
    )  # fmt: skip
    cli("compensate", "--execute", "--yes", env=token)
    assert api.refunds == ["charge=ch_1&reason=a+b"]
    (sent,) = api.sent("POST", "/private/refunds")
    assert sent.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_e11_bad_case_38_another_credential_is_refused_and_nothing_is_lost(cli: Cli, api: Api, base: None) -> None:
    http(
        cli, api, "/private/refunds", "--undo-header", "Authorization: Bearer env:TOKEN", env={"TOKEN": "right"}
    )  # fmt: skip
    for env, words in (({"TOKEN": "another"}, "not the one"), ({}, "is not set")):
        result = cli("compensate", "--execute", "--yes", "--json", check=False, env=env)
        assert result.code == 6 and words in result.json["effects"][0]["detail"]
    assert not api.changes()
    assert cli("compensate", "--execute", "--yes", env={"TOKEN": "right"}).code == 0
    assert len(api.refunds) == 1


def test_wb_29_e05_p_09_one_reverse_order_over_all_kinds(cli: Cli, api: Api, project: Path, base: None) -> None:
    log = project.parent / "order"
    for number in range(6):
        api.things[str(number)] = {}
        if number % 2:
            http(cli, api, f"/things/{number}", method="DELETE")
        else:
            cli("record", "command", "--description", f"{number}", "--resource", f"r{number}", "--",
                "/bin/sh", "-c", f"echo {number} >> {log}")  # fmt: skip
    report = cli("rollback", "--yes", "--json").json["report"]
    assert [e["description"] for e in report["effects"] if e["description"].isdigit()] == ["4", "2", "0"]
    assert log.read_text().split() == ["4", "2", "0"]
    assert [s.path for s in api.changes()] == ["/things/5", "/things/3", "/things/1"]


def test_wb_29_what_fails_stops_what_it_stands_on_and_nothing_else(cli: Cli, api: Api, base: None) -> None:
    """A network is not deleted under the machine that could not be deleted."""
    record = ("record", "command", "--description")
    cli(*record, "network", "--resource", "net", "--", "true")
    cli(*record, "bucket", "--resource", "bucket", "--", "true")
    cli(*record, "machine", "--resource", "vm", "--depends", "net", "--", "false")
    result = cli("rollback", "--yes", "--json", check=False)
    assert result.code == 6
    states = {e["description"]: e["state"] for e in result.json["report"]["effects"]}
    assert states == {"machine": "manual", "bucket": "undone", "network": "failed"}
    again = cli("rollback", "base", "--yes", "--json", check=False).json["report"]["effects"]
    assert {e["description"] for e in again} == {"machine", "network"}


@pytest.mark.parametrize(
    ("undo", "path"),
    [
        ("/refunds/café", "/refunds/caf%C3%A9"),
        ("/refunds/caf\udce9", "/refunds/caf%E9"),
        ("/refunds/caf%C3%A9", "/refunds/caf%C3%A9"),
        ("/refunds/a?b=ü&c=[1]", "/refunds/a?b=%C3%BC&c=[1]"),
    ],
)
def test_letters_of_any_kind_in_an_undo_are_sent(cli: Cli, api: Api, base: None, undo: str, path: str) -> None:
    http(cli, api, undo, "--undo-form", "name=caf\udce9")
    assert cli("rollback", "base", "--yes", "--json").json["report"]["effects"][0]["state"] == "undone"
    assert [seen.path for seen in api.changes()] == [path] and "name=caf%E9" in api.changes()[0].body


def test_an_undo_that_cannot_be_sent_is_named_and_the_rest_goes_on(cli: Cli, api: Api, base: None) -> None:
    http(cli, api, "/refunds/one")
    http(cli, api, "/refunds/two", "--undo-header", "Näme: x")
    report = cli("rollback", "base", "--yes", "--json", check=False)
    assert report.code == 6 and [e["state"] for e in report.json["report"]["effects"]] == ["failed", "undone"]
    assert "can't be sent as it is written down" in report.json["report"]["effects"][0]["detail"]
    assert [seen.path for seen in api.changes()] == ["/refunds/one"]


def test_effects_that_name_no_resource_may_stand_on_each_other(cli: Cli, base: None) -> None:
    for name, program in (("first", "true"), ("second", "false"), ("third", "true")):
        cli("record", "command", "--description", name, "--", program)
    effects = cli("rollback", "--yes", "--json", check=False).json["report"]["effects"]
    assert [(e["description"], e["state"]) for e in effects] == [
        ("third", "undone"), ("second", "manual"), ("first", "failed"),
    ]  # fmt: skip


def test_e06_what_cannot_be_undone_is_named_before(cli: Cli, api: Api, project: Path, base: None) -> None:
    cli("record", "http", "--method", "POST", "--url", api.url + "/charges")
    plan = cli("rollback", "--dry-run", "--json").json["plan"]
    (action,) = [a for a in plan["actions"] if a["kind"] == "effect"]
    assert action["verb"] == "leave" and "irreversible" in action["reason"]
    (project / "README.md").write_text("broken")
    result = cli("rollback", "--yes", check=False)
    assert result.code == 6 and "not undone (irreversible)" in result.out
    assert (project / "README.md").read_text().startswith("# A project")


@pytest.mark.parametrize(
    ("path", "method", "state", "words"),
    [
        ("/answers/404", "DELETE", "manual", "whether it is gone or the address is wrong is not known"),
        ("/answers/410", "DELETE", "manual", "whether it is gone or the address is wrong is not known"),
        ("/answers/404", "POST", "failed", "404"),
        ("/answers/409", "DELETE", "conflict", "somebody changed"),
        ("/answers/412", "PUT", "conflict", "somebody changed"),
        ("/answers/401", "DELETE", "failed", "401"),
        ("/answers/302", "DELETE", "failed", "redirects are not followed"),
        ("/answers/500", "POST", "manual", "not known"),
        ("/breaks", "POST", "manual", "not known"),
        ("/later/2", "POST", "undone", "200"),
    ],
)
def test_e03_e04_what_an_answer_means(
    cli: Cli, api: Api, base: None, path: str, method: str, state: str, words: str
) -> None:
    http(cli, api, path, method=method)
    (effect,) = cli("compensate", "--execute", "--yes", "--json", check=False).json["effects"]
    assert effect["state"] == state and words in effect["detail"]


def test_a_slip_in_the_undos_url_is_not_called_undone(cli: Cli, api: Api, base: None) -> None:
    """404 says that nothing is there, not that the thing ever was; who saw it there may say so."""
    api.things["7"] = {"id": "7"}
    record = ("record", "http", "--method", "POST", "--url", api.url + "/things", "--undo-method", "DELETE")
    cli(*record, "--undo-url", api.url + "/things/7")
    cli(*record, "--undo-url", api.url + "/thing/8")
    result = cli("rollback", "--yes", check=False)
    assert result.code == 6 and "not undone (manual)" in result.out
    assert not api.things, "the other one is undone all the same"
    cli("keep")
    http(cli, api, "/things/9", "--undo-gone-is-done", method="DELETE")
    (effect,) = cli("compensate", "base", "--execute", "--yes", "--json").json["effects"]
    assert effect["state"] == "undone" and "gone already" in effect["detail"]


def test_e03_an_undo_that_may_have_arrived_is_not_sent_again(cli: Cli, api: Api, base: None) -> None:
    """Nobody knows whether the refund was made: a person has to look. Where a key makes it safe it is sent again."""
    http(cli, api, "/breaks")
    for _ in range(3):
        cli("compensate", "base", "--execute", "--yes", check=False)
    assert len(api.changes()) == 1
    cli("keep")
    http(cli, api, "/breaks", "--undo-idempotent")
    for _ in range(2):
        cli("compensate", "base", "--execute", "--yes", check=False)
    keys = {seen.headers["Idempotency-Key"] for seen in api.changes()[1:]}
    assert len(api.changes()) == 3 and len(keys) == 1


def test_e03_a_command_that_acted_and_then_failed_is_not_run_again(cli: Cli, project: Path, base: None) -> None:
    """An exit code doesn't tell whether the refund was made: a person has to look. Where it may be repeated, it is."""
    log = project.parent / "refunds"
    refund = ("/bin/sh", "-c", f"echo refund >> {log}; exit $(test $(wc -l < {log}) = 3 && echo 0 || echo 1)")
    cli("record", "command", "--description", "charge", "--", *refund)
    for _ in range(2):
        result = cli("rollback", "base", "--yes", check=False)
        assert result.code == 6 and "not undone (manual)" in result.out
        assert "exit code 1; how far it came is not known" in result.out
    assert log.read_text().split() == ["refund"]
    cli("keep")
    cli("record", "command", "--description", "charge", "--undo-idempotent", "--", *refund)
    states = [
        cli("rollback", "base", "--yes", "--json", check=False).json["report"]["effects"][0]["state"] for _ in range(2)
    ]
    assert states == ["manual", "undone"] and len(log.read_text().split()) == 3


def test_bad_case_37_429_is_waited_for_with_the_same_key(cli: Cli, api: Api, base: None) -> None:
    http(cli, api, "/later/3")
    cli("compensate", "--execute", "--yes")
    assert len({seen.headers["Idempotency-Key"] for seen in api.changes()}) == 1
    assert api.done == ["POST /later/3"]


def test_e12_nobody_there_is_a_clear_error_and_proxies_are_ignored(cli: Cli, api: Api, base: None) -> None:
    api.things["1"] = {}
    http(cli, api, "/things/1", method="DELETE")
    env = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    assert cli("compensate", "--execute", "--yes", env=env).code == 0
    dead = cli(
        "record", "http", "--method", "POST", "--url", "http://127.0.0.1:1/x", "--undo-method", "DELETE",
        "--undo-url", "http://127.0.0.1:1/x/1", "--json",
    )  # fmt: skip
    assert dead.json["ok"]
    result = cli("compensate", "--execute", "--yes", check=False)
    assert result.code == 6 and "could not connect to 127.0.0.1:1" in result.out


def test_e14_a_command_that_hangs_forks_or_floods_is_ended_with_all_it_started(
    cli: Cli, project: Path, base: None
) -> None:
    marker = project.parent / "late"
    cli("record", "command", "--description", "floods", "--resource", "a", "--", "yes")
    cli("record", "command", "--description", "forks", "--resource", "b", "--",
        "/bin/sh", "-c", f"(sleep 1; touch {marker}) & echo started")  # fmt: skip
    cli("record", "command", "--description", "kills", "--resource", "c", "--", "/bin/sh", "-c", "kill -9 $$")
    effects = cli("compensate", "--execute", "--yes", "--json", check=False).json["effects"]
    assert [e["state"] for e in effects] == ["manual", "undone", "manual"]
    assert "bytes of output" in effects[2]["detail"] and len(effects[2]["detail"]) < 9000
    time.sleep(1.3)
    assert not marker.exists()


def test_bad_case_52_captured_words_are_inert(cli: Cli, project: Path, base: None) -> None:
    cli("record", "command", "--description", "d", "--", "ls", "--", "-rf", "--upload-pack=touch x", check=True)
    (effect,) = cli("compensate", "--execute", "--yes", "--json", check=False).json["effects"]
    assert effect["state"] == "manual" and "-rf" in effect["detail"]
    assert not (project / "x").exists()


def test_what_changes_while_effects_are_undone_stays_and_is_named(cli: Cli, project: Path, base: None) -> None:
    """An inverse may take minutes. A person's new file, and one in a folder that the agent made, are in no plan."""
    cli("run", "--label", "agent", "--", "sh", "-c", "mkdir made; echo x > made/by-the-agent; echo x > README.md")
    (project / "before").write_text("mine")
    script = "echo mine > new; echo mine > made/mine; echo mine > src/util.py"
    cli("record", "command", "--description", "slow", "--", "sh", "-c", f"cd {project}; {script}")
    result = cli("rollback", "base", "--yes", check=False)
    for name in ("new", "made/mine", "src/util.py"):
        assert (project / name).read_text().strip() == "mine", name
        assert name in result.out, name
    assert (project / "before").read_text() == "mine"
    assert not (project / "made" / "by-the-agent").exists()
    assert (project / "README.md").read_text().startswith("# A project")


@pytest.mark.parametrize("has_windows", [True, False])
def test_a_file_of_the_plan_that_changes_meanwhile_is_left_and_told_by_the_exit_code(
    cli: Cli, api: Api, project: Path, base: None, has_windows: bool
) -> None:
    """Effects are undone already, so it is no longer true that nothing was touched."""
    if has_windows:
        cli("run", "--label", "agent", "--", "sh", "-c", "echo agent > README.md; echo agent > data.bin")
    else:
        (project / "README.md").write_text("agent\n")
        (project / "data.bin").write_text("agent\n")
    http(cli, api, "/refunds")
    cli(
        "record", "command", "--description", "s", "--resource", "r", "--", "sh", "-c", f"echo me > {project}/README.md"
    )
    result = cli("rollback", "base", "--yes", check=False)
    assert result.code == 6 and "not undone README.md: changed while effects were undone" in result.out
    assert (project / "README.md").read_text() == "me\n" and len(api.refunds) == 1
    assert (project / "data.bin").read_bytes() == bytes(range(256)) * 16


def test_effects_of_one_step_go_with_its_undo(cli: Cli, api: Api, project: Path, base: None) -> None:
    reprieve = f"python -m reprieve record http --method POST --url {api.url}/charges --undo-method POST --undo-url "
    for name in ("one", "two"):
        cli("run", "--label", name, "--", "sh", "-c", f"{reprieve}{api.url}/refunds/{name}; touch {name}")
    cli("undo", "step:one", "--yes")
    assert [seen.path for seen in api.changes()] == ["/refunds/one"]
    assert not (project / "one").exists() and (project / "two").exists()


def test_an_effects_id_from_the_log_is_undone_alone(cli: Cli, api: Api, project: Path, base: None) -> None:
    ids = [http(cli, api, f"/refunds/{name}") for name in ("one", "two", "three")]
    (project / "new").touch()
    named = [e["id"] for e in cli("log", "--json").json["entries"] if e["kind"] == "effect"]
    assert named == ids[::-1]
    shown = cli("undo", ids[1], "--dry-run").out
    assert "Plan: undo POST" in shown and f"{api.url}/refunds/two" in shown and "/refunds/one" not in shown
    left = cli("undo", ids[1], check=False)
    assert left.code == 6 and "undone with --yes" in left.out and not api.changes()
    done = cli("undo", ids[1][:6], "--yes", "--json").json["report"]
    assert [(e["id"], e["state"]) for e in done["effects"]] == [(ids[1], "undone")] and done["operation"] == ""
    assert [seen.path for seen in api.changes()] == ["/refunds/two"] and (project / "new").exists()
    assert "Nothing to undo" in cli("undo", ids[1], "--yes").out and len(api.changes()) == 1
    cli("keep", ids[0])
    refused = cli("undo", ids[0], "--yes", check=False)
    assert refused.code == 5 and "is kept" in refused.err and len(api.changes()) == 1


def test_an_effect_that_later_ones_stand_on_is_not_undone_without_them(cli: Cli, api: Api, base: None) -> None:
    item = http(cli, api, "/refunds/1")
    note = http(cli, api, "/refunds/1/2")
    needs = http(cli, api, "/refunds/other", "--depends", "/refunds/1/2")
    http(cli, api, "/refunds/11")
    refused = cli("undo", item, "--yes", "--json", check=False)
    assert refused.code == 4 and refused.json["error"]["dependants"] == [needs, note] and not api.changes()
    cli("undo", item, "--yes", "--tail")
    assert [seen.path for seen in api.changes()] == ["/refunds/other", "/refunds/1/2", "/refunds/1"]


def test_a_label_wins_over_the_beginning_of_an_effects_id(cli: Cli, base: None) -> None:
    id = cli("record", "command", "--description", "d", "--json", "--", "true").json["effect"]["id"]
    made = cli("checkpoint", id[:3], "-q").out.strip()
    assert cli("show", id[:3], "--json").json["entry"]["id"] == made
    assert cli("show", id[:4], "--json").json["effect"]["id"] == id


def test_redo_moves_files_and_says_that_effects_stay_undone(cli: Cli, api: Api, project: Path, base: None) -> None:
    http(cli, api, "/refunds")
    (project / "README.md").write_text("broken")
    cli("rollback", "--yes")
    result = cli("redo", check=False)
    assert (project / "README.md").read_text() == "broken"
    assert "was undone and is not done again" in result.out
    assert len(api.refunds) == 1


def test_bad_case_51_wb_42_a_damaged_journal_sends_nothing_and_files_still_move(
    cli: Cli, api: Api, project: Path, base: None, home: Path
) -> None:
    import sqlite3

    http(cli, api, "/refunds")
    with sqlite3.connect(home / "effects.db") as db:
        db.execute("UPDATE rows SET body = replace(body, '/refunds', '/things') WHERE seq = 1")
    (project / "README.md").write_text("broken")
    result = cli("rollback", "--yes", check=False)
    assert result.code == 13 and "journal of effects is damaged" in result.err
    assert not api.changes()
    cli("rollback", "--files")
    assert (project / "README.md").read_text().startswith("# A project")
