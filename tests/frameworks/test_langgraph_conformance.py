"""LangGraph's own conformance suite, every test of every capability by count; the sync methods through it too."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver

from reprieve.frameworks.langgraph import ReprieveSaver

EXPECTED = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


class SyncInside(ReprieveSaver):
    """Asynchronous methods that call the synchronous ones: the suite knows only the former."""

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(self, *args: Any, **words: Any) -> None:
        self.put_writes(*args, **words)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **words: Any) -> AsyncIterator[Any]:
        for one in self.list(config, **words):
            yield one

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source: str, target: str) -> None:
        self.copy_thread(source, target)

    async def aprune(self, thread_ids: Sequence[str], **words: Any) -> None:
        self.prune(thread_ids, **words)


@pytest.mark.parametrize("cls", [ReprieveSaver, SyncInside], ids=["async", "sync"])
@pytest.mark.parametrize("medium", ["memory", "disk"])
def test_every_test_of_every_capability_passes_81(cls: type[ReprieveSaver], medium: str, tmp_path: Path) -> None:
    @checkpointer_test(name="reprieve")
    async def ours() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        with cls(tempfile.mkdtemp(dir=tmp_path) if medium == "disk" else None) as made:
            yield made

    results = asyncio.run(validate(ours)).to_dict()["results"]
    assert {name: found["tests_passed"] for name, found in results.items()} == EXPECTED
    assert not any(found["tests_failed"] for found in results.values())
    assert sum(EXPECTED.values()) == 81


def test_no_method_of_the_contract_is_left_to_the_base_class() -> None:
    """Two that the base class does well are not ours: they are made of others."""
    theirs = {name for name in vars(BaseCheckpointSaver) if not name.startswith("_")} - {"serde", "config_specs"}
    ours = {name for name in theirs if getattr(ReprieveSaver, name) is not getattr(BaseCheckpointSaver, name)}
    assert theirs - ours == {"get", "aget"}


def test_the_oracle_lacks_what_we_have() -> None:
    """If LangGraph's own savers get these, the guide's claim has to go."""
    missing = ("delete_for_runs", "copy_thread", "prune")
    assert all(getattr(InMemorySaver, name) is getattr(BaseCheckpointSaver, name) for name in missing)
