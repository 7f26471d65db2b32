"""An agent that edits reprieve.toml weakens nothing: a person has to accept it first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reprieve.app.accepting import accept
from reprieve.app.finding import open_workspace
from support import Cli
from support.acts import command
from support.claude import Claude
from support.settings import write_accepted
from support.terminal import at_terminal
from support.watching import watching

COMMAND = "reprieve config accept"
PLANT = "echo 'exclude = [\"novel.txt\"]' > reprieve.toml"
FIRST = b"It was a dark night.\n"
MINE = FIRST + b"The person's own line.\n"


@pytest.fixture
def novel(project: Path) -> Path:
    path = project / "novel.txt"
    path.write_bytes(FIRST)
    return path


def unaccepted(answer: Any) -> list[tuple[str, object]]:
    return [(one["key"], one["value"]) for one in answer.get("unaccepted_settings", [])]


def exclude(project: Path, *patterns: str) -> None:
    (project / "reprieve.toml").write_text(f"exclude = {json.dumps(patterns)}\n")


def gaps(cli: Cli) -> set[str]:
    return {gap["path"] for gap in cli("checkpoint", "--json").json["checkpoint"]["gaps"]}


# --- the story --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", [PLANT, "echo 'max_file_size = 1' > reprieve.toml"], ids=["exclude", "size"])
def test_a_line_that_a_person_wrote_survives_a_planted_setting(cli: Cli, novel: Path, plant: str) -> None:
    """Run 1 plants it, the person writes, run 2 overwrites: the person's bytes come back."""
    cli("init")
    planted = cli("run", "--label", "one", "--", "sh", "-c", plant)
    novel.write_bytes(MINE)
    cli("run", "--label", "two", "--", "sh", "-c", "echo overwritten > novel.txt")
    cli("rollback", "step:two")
    assert novel.read_bytes() == MINE
    assert planted.err.count(COMMAND) == 1


def test_the_same_through_the_hooks_of_an_agent(cli: Cli, project: Path, novel: Path) -> None:
    """The call that planted it is answered with a note for the person, and no other call is."""
    claude = Claude(project)
    claude.prompt("go")
    claude.before("c1")
    subprocess.run(["sh", "-c", PLANT], cwd=project, check=True)
    note = claude.after("c1")["additionalContext"]
    assert COMMAND in note and '"novel.txt"' in note and "Tell the user" in note
    novel.write_bytes(MINE)
    assert claude.before("c2") == {}
    novel.write_bytes(b"overwritten\n")
    assert claude.after("c2") == {}
    cli("rollback", "call:c2")
    assert novel.read_bytes() == MINE


def test_the_same_under_watch(cli: Cli, project: Path, novel: Path) -> None:
    cli("checkpoint")
    with watching(project) as watch:
        exclude(project, "novel.txt")
        watch.until("Warning", COMMAND)
        watch.step("created reprieve.toml")
        novel.write_bytes(MINE)
        kept = watch.step("modified novel.txt")
        novel.write_bytes(b"overwritten\n")
        watch.step("modified novel.txt")
        assert watch.end() == 0
    assert sum(COMMAND in line for line in watch.lines) == 1
    cli("rollback", kept, "--everything")
    assert novel.read_bytes() == MINE


# --- what is said -----------------------------------------------------------------------------------------------


def test_commands_mention_a_weaker_setting_once_until_it_is_accepted(cli: Cli, project: Path, novel: Path) -> None:
    cli("checkpoint")
    exclude(project, "novel.txt")
    wanted = [("exclude", ["novel.txt"])]
    for words in (("status",), ("checkpoint",), ("init",), ("run", "--", "true"), ("config",), ("log",)):
        said = cli(*words)
        assert (said.out + said.err).count(COMMAND) == 1, words
        assert unaccepted(cli(words[0], "--json", *words[1:]).json) == wanted, words
    assert any(COMMAND in finding["hint"] for finding in cli("doctor", "--json", check=False).json["findings"])
    cli("config", "accept", "--yes")
    for words in (("status",), ("checkpoint",), ("run", "--", "true")):
        said = cli(*words)
        assert COMMAND not in said.out + said.err
        assert unaccepted(cli(words[0], "--json", *words[1:]).json) == []


def test_a_run_that_plants_a_setting_has_it_in_its_answer(cli: Cli, project: Path, novel: Path) -> None:
    assert unaccepted(cli("run", "--json", "--", "sh", "-c", PLANT).json) == [("exclude", ["novel.txt"])]
    assert unaccepted(cli("run", "--json", "--", "rm", "reprieve.toml").json) == []


def test_a_file_that_came_with_the_folder_is_not_in_force_either(cli: Cli, project: Path, novel: Path) -> None:
    """A cloned repository may be hostile: the first command says what its reprieve.toml would weaken."""
    exclude(project, "novel.txt")
    assert COMMAND in cli("init").err
    assert gaps(cli) == set()


# --- accepting --------------------------------------------------------------------------------------------------


def test_a_person_accepts_at_a_terminal(cli: Cli, project: Path, novel: Path) -> None:
    cli("checkpoint")
    exclude(project, "novel.txt")
    code, screen = at_terminal("config", "accept", cwd=project, answer="n\n")
    assert code == 5 and gaps(cli) == set()
    code, screen = at_terminal("config", "accept", cwd=project, answer="y\n")
    assert code == 0 and 'exclude "novel.txt"' in screen and "1 file would no longer be saved: novel.txt" in screen
    assert gaps(cli) == {"novel.txt"}
    (entry,) = [e for e in cli("log", "--all", "--json").json["entries"] if e["kind"] == "accept"]
    assert entry["actor"] == "person" and "novel.txt" in entry["label"]


def test_without_a_terminal_it_needs_a_yes(cli: Cli, project: Path, novel: Path) -> None:
    cli("init")
    exclude(project, "novel.txt")
    for words in (("config", "accept"), ("config", "accept", "--json")):
        assert cli(*words, check=False).code == 5
    for flag in ("-n", "--dry-run"):
        shown = cli("config", "accept", flag, "--yes", "--json").json
        assert shown["dry_run"] and unaccepted(shown) == [("exclude", ["novel.txt"])]
    assert gaps(cli) == set()
    answer = cli("config", "accept", "-y", "--json").json
    assert answer["accepted_settings"][0]["value"] == ["novel.txt"]
    assert gaps(cli) == {"novel.txt"}
    assert cli("config", "accept", "--json").json["accepted_settings"] == []


def test_an_agent_cannot_accept(cli: Cli, project: Path, novel: Path) -> None:
    tries = f"{' '.join(command('config', 'accept', '--yes'))}; test $? = 5"
    ran = cli("run", "--", "sh", "-c", f"{PLANT}; {tries}")
    assert "an agent can't accept weaker settings" in ran.err
    assert cli("config", "accept", "--yes", env={"CLAUDECODE": "1"}, check=False).code == 5
    assert gaps(cli) == set()


def test_what_is_accepted_is_what_was_shown(cli: Cli, project: Path, novel: Path) -> None:
    """An agent that edits the file between the question and the answer gains nothing."""
    (project / "draft.txt").write_text("a draft\n")
    cli("checkpoint")
    exclude(project, "draft.txt")
    with open_workspace(str(project)) as ws:
        shown = ws.config.weaker
        exclude(project, "draft.txt", "novel.txt")
        accept(ws, shown)
    assert gaps(cli) == {"draft.txt"}


# --- how long it holds ------------------------------------------------------------------------------------------


def test_more_excludes_wait_and_the_accepted_ones_stay(cli: Cli, project: Path, novel: Path) -> None:
    write_accepted(project, 'exclude = ["data.bin"]\n')
    exclude(project, "data.bin", "novel.txt")
    assert gaps(cli) == {"data.bin"}
    (one,) = cli("status", "--json").json["unaccepted_settings"]
    assert one["text"] == 'exclude "novel.txt"'


def test_an_exclude_that_a_person_took_out_needs_a_new_yes(cli: Cli, project: Path, novel: Path) -> None:
    """Otherwise an agent could put back what the person regretted."""
    write_accepted(project, 'exclude = ["novel.txt"]\n')
    assert gaps(cli) == {"novel.txt"}
    (project / "reprieve.toml").unlink()
    assert gaps(cli) == set()
    cli("run", "--", "sh", "-c", PLANT)
    assert gaps(cli) == set()


def test_a_negation_that_is_taken_out_stays_in_force(cli: Cli, project: Path, novel: Path) -> None:
    """Fewer lines can mean less protection."""
    (project / "log.txt").write_text("log\n")
    write_accepted(project, 'exclude = ["*.txt", "!novel.txt", "!no-newline.txt"]\n')
    assert gaps(cli) == {"log.txt"}
    exclude(project, "*.txt", "!no-newline.txt")
    assert gaps(cli) == {"log.txt"}
    assert unaccepted(cli("status", "--json").json)


def test_a_broken_file_withdraws_nothing(cli: Cli, project: Path, novel: Path) -> None:
    write_accepted(project, 'exclude = ["novel.txt"]\n')
    (project / "reprieve.toml").write_text("]]")
    assert gaps(cli) == set()
    exclude(project, "novel.txt")
    assert gaps(cli) == {"novel.txt"}


def test_what_tightens_holds_at_once(cli: Cli, project: Path, tmp_path: Path) -> None:
    cli("init")
    (tmp_path / "config.toml").write_text('exclude = ["*.txt"]\n')
    (project / "reprieve.toml").write_text(
        'exclude = ["!no-newline.txt"]\nretention.keep_days = 90\npolicy.mode = "autopilot"\nbudget.money = 5\n'
    )
    answer = cli("config", "--json").json
    settings = {one["key"]: one["value"] for one in answer["settings"]}
    assert settings["exclude"] == ["*.txt", "!no-newline.txt"]
    assert (settings["retention.keep_days"], settings["policy.mode"], settings["budget.money"]) == (90, "autopilot", 5)
    assert unaccepted(answer) == []


@pytest.mark.parametrize(
    ("own", "planted", "key"),
    [
        ("[retention]\nkeep_days = 90\n", "[retention]\nkeep_days = 1\n", "retention.keep_days"),
        ('[policy]\nmode = "autopilot"\n', '[policy]\nmode = "assist"\n', "policy.mode"),
        ("[budget]\nmoney = 5\n", "[budget]\nmoney = 0\n", "budget.money"),
        ("max_file_size = 100\n", "max_file_size = 50\n", "max_file_size"),
    ],
)
def test_every_weaker_setting_waits(cli: Cli, project: Path, tmp_path: Path, own: str, planted: str, key: str) -> None:
    cli("init")
    (tmp_path / "config.toml").write_text(own)
    (project / "reprieve.toml").write_text(planted)
    before = cli("config", "get", key).out
    assert [name for name, _ in unaccepted(cli("status", "--json").json)] == [key]
    cli("config", "accept", "--yes")
    after = cli("config", "get", key).out
    assert before != after and before.strip() in own and after.strip() in planted


@pytest.mark.parametrize(
    "planted",
    [
        '[policy]\ntrusted_commands = ["sh"]\n',
        '[hook]\non_failure = "allow"\n',
        "[hook]\nbudget_s = 1\n",
        "[retention]\nmax_bytes = 1\n",
        '[plan]\non_failure = "keep"\n',
        '[mail]\nsmtp_host = "elsewhere.example"\n',
        "cross_mounts = false\n",
        "helper = false\n",
    ],
)
def test_what_only_the_user_may_set_stays_out_of_reach_and_is_mentioned(cli: Cli, project: Path, planted: str) -> None:
    cli("init")
    ran = cli("run", "--", "sh", "-c", f"printf '%s' '{planted}' > reprieve.toml")
    assert "can be set only in the user's configuration" in ran.err
    cli("config", "accept", "--yes")
    assert all(one["origin"] != str(project / "reprieve.toml") for one in cli("config", "--json").json["settings"])


# --- nothing is lost on the way ---------------------------------------------------------------------------------


def test_a_file_that_is_excluded_later_is_neither_deleted_nor_lost(cli: Cli, project: Path, novel: Path) -> None:
    """Saved before, accepted as excluded since: rollbacks leave it alone. Once it is protected again, redo has it."""
    before = cli("checkpoint", "--json").json["checkpoint"]["id"]
    write_accepted(project, 'exclude = ["novel.txt"]\n')
    novel.write_bytes(MINE)
    after = cli("checkpoint", "--json").json["checkpoint"]["id"]
    for point in (before, after):
        cli("rollback", point, "--everything", check=False)
        assert novel.read_bytes() == MINE
    # the first of these took reprieve.toml away, so it has to be accepted again: now the file is protected
    cli("rollback", before, "--everything")
    assert novel.read_bytes() == FIRST
    cli("redo")
    assert novel.read_bytes() == MINE


def test_a_history_made_while_the_exclude_was_in_force_deletes_nothing(cli: Cli, project: Path, novel: Path) -> None:
    """As after an upgrade: older entries never saw the file, newer ones save it. Going back leaves it where it is."""
    write_accepted(project, 'exclude = ["novel.txt"]\n')
    old = cli("checkpoint", "--json").json["checkpoint"]["id"]
    (project / "reprieve.toml").write_text("")  # withdrawn
    cli("checkpoint")
    exclude(project, "novel.txt")
    novel.write_bytes(MINE)
    cli("run", "--", "sh", "-c", "echo x > made")
    cli("rollback", old, "--everything", check=False)
    assert novel.read_bytes() == MINE and not (project / "made").exists()


def test_accepting_in_the_middle_of_a_turn_changes_nobodys_work(cli: Cli, project: Path, novel: Path) -> None:
    claude = Claude(project)
    claude.before("c1")
    (project / "made").write_text("the agent's\n")
    write_accepted(project, 'exclude = ["novel.txt"]\n')
    claude.after("c1")
    assert cli("rollback", "call:c1", check=False).code == 6  # reprieve.toml is the agent's as well
    assert not (project / "made").exists() and novel.read_bytes() == FIRST
    cli("redo")
    assert (project / "made").exists()
