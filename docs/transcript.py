"""Make the transcripts in README.md and the guides by running them: `python docs/transcript.py`.

With `--check` only say which are stale.

Ids are drawn anew in every run; here each gets a fixed one in the order in which it appears, so that the text stays
the same as long as the program says the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guides" / "keep-your-own-work.md"
BEGIN, END = "<!-- transcript: python docs/transcript.py -->\n", "<!-- end of transcript -->\n"
IDS = ("k7m2x4q9wd", "w3pe8t1zrn", "9qx4c6v0mj", "b5nh2r7yke", "t8d1f3s6ga", "m0z9j4c2xq")


class Story(NamedTuple):
    """What is there at first (with what the agent will do, beside the project), and what is typed."""

    files: dict[str, str]
    steps: tuple[str, ...]


PRICES = '''\
"""Prices of a shop."""

TAX = 0.19


def net(price):
    return round(price / (1 + TAX), 2)


def gross(price):
    return round(price * (1 + TAX), 2)


def shown(price):
    return f"{price:.2f} EUR"
'''
REWRITTEN = '''\
"""Prices of a shop."""

from decimal import Decimal

TAX = Decimal("0.19")


def net(price):
    return (price / (1 + TAX)).quantize(Decimal("0.01"))


def gross(price):
    return (price * (1 + TAX)).quantize(Decimal("0.01"))


def shown(price):
    return f"{price:.2f} EUR"
'''
REWRITE = f"""\
cat > prices.py <<'END'
{REWRITTEN}END
echo 'from prices import *' > test_prices.py
"""

STORIES = {
    README: Story(
        {
            ".gitignore": ".env\n",
            ".env": "TOKEN=secret\n",
            "app.py": 'print("hello")\n',
            "notes.md": "never committed anywhere\n",
            "deploy.sh": "#!/bin/sh\n",
            "agent.sh": "rm notes.md; echo TOKEN=changed > .env; chmod -x deploy.sh; "
            "echo 'print(\"rewritten\")' > app.py; mkdir junk\n",
        },
        (
            "cat .gitignore",
            "reprieve run -- sh agent.sh",
            "reprieve status",
            "reprieve diff -- app.py",
            "reprieve rollback",
            "reprieve status",
            "reprieve redo --quiet && cat .env",
        ),
    ),
    GUIDE: Story(
        {"prices.py": PRICES, "../agent.sh": REWRITE},
        (
            "reprieve run --label rewrite -- sh ../agent.sh",
            "sed -i 's/EUR/€/' prices.py                     # you fix a line of the module",
            "echo 'ask about discounts' > notes.md           # and add a file",
            "reprieve status",
            "reprieve diff -- prices.py",
            "reprieve rollback",
            "reprieve diff -- prices.py",
            "ls",
        ),
    ),
}


def run(story: Story) -> str:
    """The transcript as text."""
    with tempfile.TemporaryDirectory(prefix="reprieve-transcript-") as scratch:
        root = Path(scratch, "project")
        root.mkdir()
        for name, text in story.files.items():
            (root / name).write_text(text, encoding="utf-8")
            if name == "deploy.sh":
                (root / name).chmod(0o755)
        source = str(ROOT / "src")
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("REPRIEVE_", "FORCE_"))},
            "REPRIEVE_HOME": str(Path(scratch, "store")),
            "REPRIEVE_CONFIG": str(Path(scratch, "config.toml")),
            "PYTHONPATH": source,
            "LC_ALL": "C.UTF-8",
        }
        reprieve = f"reprieve() {{ '{sys.executable}' -m reprieve \"$@\"; }}\n"
        lines = []
        for step in story.steps:
            done = subprocess.run(
                ["bash", "-c", reprieve + step],
                cwd=root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
            )
            lines.append(f"$ {step}\n{done.stdout}")
        log = subprocess.run(
            ["bash", "-c", reprieve + "reprieve log --all --json"],
            cwd=root,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        return with_fixed_ids("".join(lines), [entry["id"] for entry in json.loads(log.stdout)["entries"]])


def with_fixed_ids(text: str, ids: list[str]) -> str:
    shown = sorted((id for id in ids if id in text), key=text.index)
    for id, fixed in zip(shown, IDS, strict=False):
        text = text.replace(id, fixed)
    return text


def with_transcript(page: str, transcript: str) -> str:
    """The page with the transcript in its place."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n```console\n{transcript}```\n\n{END}{tail}"


def main() -> int:
    stale = False
    for page, story in STORIES.items():
        text = page.read_text(encoding="utf-8")
        fresh = with_transcript(text, run(story))
        if "--check" not in sys.argv:
            page.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            stale = True
            print(f"{page.name} is stale; make it anew with: python docs/transcript.py", file=sys.stderr)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
