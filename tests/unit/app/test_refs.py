"""What a REF means, from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import reprieve


@pytest.mark.parametrize("label", ["latest", "~0", "call:x", "1h ago"])
def test_a_label_that_no_ref_could_mean_is_refused(project: Path, label: str) -> None:
    with reprieve.open(project) as ws:
        with pytest.raises(reprieve.Usage, match="can't be a label"):
            ws.checkpoint(label)
        assert list(ws.log()) == []
