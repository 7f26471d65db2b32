"""What all sweeps did together, printed at the end of a run; the numbers travel as properties of the tests' reports."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """points, fired, unsound of each kind of sweep, and of all together."""
    kinds: dict[str, list[int]] = {}
    for reports in terminalreporter.stats.values():
        for report in (r for r in reports if getattr(r, "when", "") == "call"):
            for key, value in report.user_properties:
                if key == "sweep":
                    points, fired, unsound, name = str(value).split(" ", 3)
                    total = kinds.setdefault(name, [0, 0, 0])
                    for n, number in enumerate((points, fired, unsound)):
                        total[n] += int(number)
    if not kinds:
        return
    terminalreporter.section("crash sweeps")
    for name, (points, fired, unsound) in sorted(kinds.items()):
        terminalreporter.write_line(f"{points:6} points {fired:6} fired {unsound:4} unsound  {name}")
    sums = [sum(column) for column in zip(*kinds.values(), strict=True)]
    terminalreporter.write_line(f"{sums[0]:6} points {sums[1]:6} fired {sums[2]:4} unsound  together")
