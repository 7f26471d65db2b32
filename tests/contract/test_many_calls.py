"""Per-call checkpoints are cheap where nothing changed."""

from __future__ import annotations

from pathlib import Path

from reprieve.app.finding import open_workspace


def test_P_20_a_thousand_calls_without_a_change_add_next_to_nothing(project: Path, home: Path) -> None:
    """A row for each end of a call, and no byte of content; each call stays addressable."""

    def size(folder: str) -> int:
        return sum(path.stat().st_size for path in (home / folder).rglob("*") if path.is_file())

    with open_workspace(str(project), create=True) as ws:
        ws.checkpoint("base")
        packs, rows = size("packs"), (home / "store.db").stat().st_size
        for number in range(500):  # two entries each
            _, window = ws.open_window("agent:s", f"call:c{number}", label="before make")
            ws.close_window(window, label="make")
        assert size("packs") == packs
        assert ((home / "store.db").stat().st_size - rows) / 1000 < 700
        assert ws.resolve("call:c250").step == "" and ws.resolve("call:c250").label == "before make"
