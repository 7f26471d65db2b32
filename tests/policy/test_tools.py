"""Tools of MCP servers: by what name a server is known, what its tools may do, and what takes a call back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.policy.catalog import ToolRule, load
from reprieve.policy.tools import judge_tool, option_in, pair_of, server_names, uncovered, undo_of

RULES = load()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("npx -y @modelcontextprotocol/server-filesystem /p", "@modelcontextprotocol/server-filesystem"),
        ("npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /p", "@modelcontextprotocol/server-filesystem"),
        ("node /x/node_modules/@modelcontextprotocol/server-memory/dist/index.js",
         "@modelcontextprotocol/server-memory"),
        ("/x/bin/mcp-server-filesystem /p", "mcp-server-filesystem"),
        ("uvx mcp-server-git --repository /p", "mcp-server-git"),
        ("uvx mcp-server-git==2026.10.19", "mcp-server-git"),
        ("uv run mcp-server-sqlite --db-path x", "mcp-server-sqlite"),
        ("python -m mcp_server_git", "mcp-server-git"),
    ],
)  # fmt: skip
def test_a_server_is_known_by_the_command_that_starts_it(line: str, name: str) -> None:
    assert name in server_names(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "sh -c evil mcp-server-filesystem",
        "/x/evil mcp-server-filesystem",
        "evil --name=mcp-server-filesystem",
        "python evil.py @modelcontextprotocol/server-filesystem",
        "npx -y @evil/server-filesystem",
        "npx -y evil-mcp-server-filesystem",
    ],
)
def test_a_word_further_on_does_not_make_it_another_server(line: str) -> None:
    assert RULES.match_tool(server_names(line.split()), "write_file") is None


def rule(**more: Any) -> ToolRule:
    return ToolRule("r", ("s",), ("t",), **more)


@pytest.mark.parametrize(
    ("annotations", "cls"),
    [
        (None, "irreversible"),
        ({}, "irreversible"),
        ({"readOnlyHint": False}, "irreversible"),
        ({"destructiveHint": True}, "irreversible"),
        ({"destructiveHint": False, "openWorldHint": False}, "irreversible"),  # a stranger's word lowers nothing
        ({"readOnlyHint": True, "destructiveHint": True}, "irreversible"),
        ({"readOnlyHint": "true"}, "irreversible"),
        ({"readOnlyHint": True}, "read"),
    ],
)
def test_a_tool_in_no_rule(annotations: dict[str, object] | None, cls: str) -> None:
    found = judge_tool("t", rule=None, annotations=annotations, outside="", mode="assist")
    assert (found.cls, found.decision) == (cls, "run" if cls == "read" else "ask")
    strict = judge_tool("t", rule=None, annotations=annotations, outside="", mode="autopilot")
    assert (strict.cls, strict.decision) == ("irreversible", "refuse")


def test_annotations_raise_what_a_rule_says_and_never_lower_it() -> None:
    reads = rule(cls="read")
    assert judge_tool("t", rule=reads, annotations=None, outside="", mode="autopilot").cls == "read"
    harm = {"destructiveHint": True}
    assert judge_tool("t", rule=reads, annotations=harm, outside="", mode="assist").cls == "irreversible"
    harmless = {"readOnlyHint": True}
    worst = judge_tool("t", rule=rule(cls="irreversible"), annotations=harmless, outside="", mode="assist")
    assert (worst.cls, worst.decision) == ("irreversible", "ask")


def test_files_inside_are_covered_and_files_outside_are_not() -> None:
    files = rule(cls="restorable", files=("path",))
    inside = judge_tool("t", rule=files, annotations={"destructiveHint": True}, outside=None, mode="autopilot")
    assert inside.is_covered and inside.decision == "run"
    outside = judge_tool("t", rule=files, annotations=None, outside="/x is outside", mode="assist")
    assert (outside.cls, outside.is_covered, outside.decision) == ("irreversible", False, "ask")
    assert "/x is outside" in outside.reason


def test_s09_s10_where_files_are(tmp_path: Path) -> None:
    top, other = tmp_path / "top", tmp_path / "top-evil"
    top.mkdir()
    other.mkdir()
    (top / "out").symlink_to(other)
    (top / "repo").mkdir()
    (top / "repo" / ".git").write_text("gitdir: /elsewhere")
    gap = str(top / "big")

    def why(path: object, *, files: tuple[str, ...] = ("path",), argv: tuple[str, ...] = ("s",)) -> str | None:
        return uncovered(
            rule(files=files), {"path": path}, argv=argv, cwd=str(top), variables={}, tops=[str(top)], gaps=[gap]
        )

    assert why(str(top / "a")) is None and why("a/b") is None and why([str(top / "a"), "b"]) is None
    for path in (f"{top}/../x", str(other / "x"), "/etc/passwd", "~/x", "../x", f"{top}/out/x", [f"{top}/a", "/x"]):
        assert "outside" in str(why(path)), path
    assert "outside" in str(why("a", argv=("s", str(other))))  # relative to a folder that the server was given
    for path in (None, "", 7, ["a", 7], {"a": 1}):
        assert "not known" in str(why(path))
    assert "not protected" in str(why(gap)) and "not protected" in str(why(f"{gap}/x")) and why(f"{gap}ger") is None
    assert "elsewhere" in str(why(str(top / "repo"), files=("path", "path/.git")))
    assert why("x", files=("--db",), argv=("s", "--db", "in.db")) is None
    assert why("x", files=("--db",), argv=("s", "--db=/out.db")) is not None
    assert why("x", files=("env:DB",)) is not None


def test_s09_s10_what_servers_make_of_a_path(tmp_path: Path) -> None:
    """A server may tidy `link/..` away, read a relative path from the client's root, or change half a character."""
    top, other = tmp_path / "top", tmp_path / "other"
    (top / "a" / "b").mkdir(parents=True)
    other.mkdir()
    (top / "link").symlink_to(top / "a" / "b")

    def why(path: str, *, files: tuple[str, ...] = ("path",), roots: tuple[str, ...] = (), db: str = "") -> str | None:
        return uncovered(
            rule(files=files), {"path": path}, argv=("s",), cwd=str(top), variables={"DB": db}, tops=[str(top)],
            roots=roots,
        )  # fmt: skip

    assert why(f"{top}/link/../x") is None
    assert "outside" in str(why(f"{top}/link/../../other/x"))  # the system reads top/other/x, Node other/x
    assert why("x", roots=(str(top),)) is None and why(f"{top}/x", roots=(str(other),)) is None
    assert "outside" in str(why("x", roots=(str(top), str(other))))
    assert "not known" in str(why(f"{top}/\udc80"))
    assert why("", files=("env:DB",), db=f"{top}/x") is None
    assert "not known" in str(why("", files=("env:DB",), db="x"))  # the memory server: beside its own program


def test_s05_what_could_be_an_option_is_not_only_read() -> None:
    """Older git servers hand it on: git diff --output=FILE."""
    reads = rule(cls="read")
    for arguments in ({"target": "--output=/x"}, {"a": {"b": ["-o"]}}):
        found = judge_tool(
            "t", rule=reads, annotations=None, outside="", mode="assist", option=option_in(arguments)
        )  # fmt: skip
        assert (found.cls, found.decision) == ("irreversible", "ask")
    assert option_in({"target": "main", "n": -1, "m": ["a-b"]}) == ""


SCHEMA = {"inputSchema": {"required": ["item_id"]}}


@pytest.mark.parametrize(
    ("tool", "other"),
    [
        ("create_item", "delete_item"), ("add_item", "remove_item"), ("createItem", "deleteItem"),
        ("item_create", "item_delete"), ("create-item", "remove-item"), ("ItemCreate", "ItemDelete"),
        ("recreate_item", ""), ("address_item", ""), ("read_item", ""), ("additem", ""),
    ],
)  # fmt: skip
def test_pairs_by_name(tool: str, other: str) -> None:
    names = ("delete_item", "remove_item", "deleteItem", "item_delete", "remove-item", "ItemDelete", "redelete_item",
             "removeress_item", "removeitem")  # fmt: skip
    assert pair_of(tool, dict.fromkeys(names, SCHEMA)) == other


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"id": "a"}, {"item_id": "a"}),
        ({"item": {"id": 7}}, {"item_id": 7}),
        ({"item_id": "a", "id": "b"}, {"item_id": "a"}),
        ({"name": "a"}, None),
        ({"id": ""}, None),
        ({"id": True}, None),
        ({"id": ["a"]}, None),
        (None, None),
        ("text", None),
    ],
)
def test_the_id_comes_from_the_structured_answer_alone(answer: object, found: dict[str, object] | None) -> None:
    undo = undo_of("create_item", {"name": "x"}, answer, rule=None, tools={"delete_item": SCHEMA})
    assert undo.arguments == found and bool(undo.why) is (found is None)


BOTH = ("issue_id", "comment_id")


@pytest.mark.parametrize(
    ("tool", "required", "arguments", "answer", "found"),
    [
        # what the caller named keeps the caller's value; a plain id is the new thing's
        ("create_comment", BOTH, {"issue_id": 7}, {"id": 2}, {"issue_id": 7, "comment_id": 2}),
        ("create_comment", BOTH, {"issue_id": 7}, {"id": 2, "issue_id": 3}, {"issue_id": 7, "comment_id": 2}),
        ("createComment", ("issueId", "commentId"), {"issueId": 7}, {"id": 2}, {"issueId": 7, "commentId": 2}),
        ("create_issue_comment", BOTH, {"issue_id": 7}, {"id": 2}, {"issue_id": 7, "comment_id": 2}),
        ("comment_create", BOTH, {"issue_id": 7}, {"id": 2}, {"issue_id": 7, "comment_id": 2}),
        ("create_comment", ("issue_id", "id"), {"issue_id": 7}, {"id": 2}, {"issue_id": 7, "id": 2}),
        ("create", ("note_id",), {}, {"id": 2}, {"note_id": 2}),
        # one plain id is not two names
        ("create_comment", BOTH, {}, {"id": 2}, None),
        ("create_comment", ("owner_id",), {}, {"id": 2}, None),
        ("create_comment", BOTH, {}, {"issue_id": 7, "comment_id": 2}, {"issue_id": 7, "comment_id": 2}),
        # another object's id is not the thing's
        ("create_comment", ("comment_id",), {}, {"author": {"id": 1}, "comment": {"id": 2}}, {"comment_id": 2}),
        ("create_comment", ("comment_id",), {}, {"author": {"id": 1}}, None),
        ("create_comment", ("comment_id",), {}, {"author": {"comment_id": 1}}, None),
        ("create_comment", ("comment_id",), {}, {"id": "request-1", "comment": {"id": 2}}, None),
        # what was named or there before the call is not taken away
        ("create_comment", ("comment_id",), {"comment_id": 1}, {"id": 2}, None),
        ("create_comment", ("comment_id",), {"comment_id": 1}, {"comment_id": 1}, None),
        ("create_comment", ("id",), {"id": 1}, {"id": 2}, None),
        ("create_comment", ("comment_id",), {"issue": 7}, {"id": 7, "comments": [{"id": 2}]}, None),
        # nobody can say what it needs
        ("create_comment", (["comment_id"],), {}, {"id": 2}, None),
        ("create_comment", ({"a": 1}, "comment_id"), {}, {"id": 2}, None),
    ],
)
def test_a_guessed_inverse_names_what_the_call_made_and_nothing_else(
    tool: str, required: tuple[Any, ...], arguments: dict[str, object], answer: object, found: dict[str, object] | None
) -> None:
    schema = {"inputSchema": {"required": list(required)}}
    other = tool.replace("create", "delete")
    undo = undo_of(tool, arguments, answer, rule=None, tools={other: schema})
    assert undo.arguments == found and bool(undo.why) is (found is None)


def test_a_rules_inverse_is_filled_from_answer_and_arguments() -> None:
    made = rule(
        inverse="delete",
        arguments=(("ids", "{response.list[].id}"), ("at", "{arguments.at}"), ("fixed", "x"),
                   ("each", {"each": "{response.list}", "make": {"n": "{item.id}"}})),
    )  # fmt: skip
    answer = {"list": [{"id": 1}, {"id": 2}]}
    undo = undo_of("t", {"at": "{response.list}"}, answer, rule=made, tools={})
    assert undo.arguments == {
        "ids": [1, 2],
        "at": "{response.list}",  # a value is never read as a template
        "fixed": "x",
        "each": [{"n": 1}, {"n": 2}],
    }
    assert undo_of("t", {"at": 1}, {"other": 1}, rule=made, tools={}).why
