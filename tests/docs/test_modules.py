"""No module is too long to be read at once."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 600  # lines


def test_no_module_is_over_600_lines() -> None:
    modules = [path for room in ("src", "tests", "benchmarks") for path in (ROOT / room).rglob("*.*")]
    modules = [path for path in modules if path.suffix in (".py", ".pyi", ".c", ".h")]
    assert len(modules) > 400
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in modules}
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}
