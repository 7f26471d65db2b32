"""For any JSON with comments: taking our entries out gives back what they were put into."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.agents import hookfile, jsonc

WANTED: dict[str, dict[str, object]] = {
    "PreToolUse": {"matcher": "*", "hooks": [{"type": "command", "command": "reprieve hook x PreToolUse"}]},
    "Stop": {"hooks": [{"type": "command", "command": "reprieve hook x Stop"}]},
}

blank = st.sampled_from(["", "", " ", "\n", "\n  ", "\n\t", "\r\n", " // c\n", " /* c */ ", "\n  // {\n  ", "/*,*/"])
word = st.sampled_from(["a", "b", "theme", "ü", 'q"', "hook", "Stop"])


@st.composite
def laid_out(draw: st.DrawFn, value: object) -> str:
    """The value as text, with any white space, comments and trailing commas."""

    def put(value: object) -> str:
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        opener, closer = ("{", "}") if isinstance(value, dict) else ("[", "]")
        parts = []
        for inner in value.items() if isinstance(value, dict) else value:
            if isinstance(value, dict):
                key, inner = inner
                text = f"{json.dumps(key)}{draw(blank)}:{draw(blank)}{put(inner)}"
            else:
                text = put(inner)
            parts.append(draw(blank) + text + draw(blank))
        comma = "," if parts and draw(st.booleans()) else ""
        return opener + ",".join(parts) + comma + draw(blank) + closer

    return draw(st.sampled_from(["", "\ufeff"])) + draw(blank) + put(value) + draw(blank)


scalars = st.none() | st.booleans() | st.integers(-99, 99) | st.sampled_from(["x", "//", "/*", "é\\"])
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(word, v, max_size=3), max_leaves=6)
entry = st.fixed_dictionaries({"command": st.sampled_from(["mine", "reprieve-x hook", "reprieve hook y"])})
hooks = st.dictionaries(st.sampled_from(["PreToolUse", "Stop", "Other"]), st.lists(entry, max_size=2), max_size=3)
documents = st.builds(
    lambda rest, hooks: rest if hooks is None else {**rest, "hooks": hooks},
    st.dictionaries(word, values, max_size=3),
    st.none() | hooks,
).flatmap(laid_out)


@settings(max_examples=400, deadline=None)
@given(documents)
def test_out_of_in_is_the_same_text(text: str) -> None:
    merged = hookfile.merge(text, WANTED, agent="x", extras={"version": 1}, name="f")
    assert hookfile.merge(merged, WANTED, agent="x", extras={"version": 1}, name="f") == merged
    out = hookfile.unmerge(merged, agent="x", before=text, is_before_known=True, extras=["version"], name="f")
    assert out == text


@settings(max_examples=400, deadline=None)
@given(documents)
def test_without_knowing_what_was_there_the_rest_still_reads_the_same(text: str) -> None:
    merged = hookfile.merge(text, WANTED, agent="x", name="f")
    out = hookfile.unmerge(merged, agent="x", before=None, is_before_known=False, name="f")
    was = jsonc.parse(text).value()
    assert isinstance(was, dict)
    now = jsonc.parse(out).value() if out is not None else {}
    assert isinstance(now, dict)
    hooks = {event: entries for event, entries in was.get("hooks", {}).items() if entries}
    left = {event: entries for event, entries in now.get("hooks", {}).items() if entries}
    assert left == hooks
    assert {k: v for k, v in now.items() if k != "hooks"} == {k: v for k, v in was.items() if k != "hooks"}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]",:/*\n \\ab1-.e"truefalsn', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        doc = jsonc.parse(text)
    except jsonc.NotJson:
        return
    json.dumps(doc.value())
