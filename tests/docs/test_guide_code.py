"""The Python in the guides runs and does what the text around it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.shop import open_shop

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "http-effects.md"


def code() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_program_of_the_http_guide_undoes_what_it_did(project: Path, home: Path) -> None:
    with open_shop() as shop:
        shop.add("/items/1", name="one")
        script = code()[0].replace("https://api.example.com", shop.url)
        done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        words = [line.split()[:2] for line in done.stdout.splitlines()]
        assert words[:2] == [["done", "reversible"], ["done", "restorable"]]
        assert [first for first, _ in words[2:]] == ["undone", "undone"]
        assert shop.things == {"/items/1": {"id": 1, "name": "one"}}


def test_the_second_program_of_the_http_guide_runs(project: Path, home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code()[1]], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
