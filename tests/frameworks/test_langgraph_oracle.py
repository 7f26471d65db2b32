"""Time travel on random graphs and histories: what can be seen with ReprieveSaver is what InMemorySaver shows.

Replays, forks, updates, answers to interrupts, parallel nodes, subgraphs with and without a memory of their own, a
delta channel with snapshots at every third step; sync and async, in all three durabilities.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from frameworks.graphs import Plan, Player, compiled
from reprieve.frameworks.langgraph import ReprieveSaver

HISTORIES = int(os.environ.get("REPRIEVE_HISTORIES", "520"))
SHARDS = 8


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_random_history_is_told_alike_by_the_oracle(shard: int, tmp_path: Path) -> None:
    played = 0
    for seed in range(shard, HISTORIES, SHARDS):
        dice = random.Random(seed)
        plan = Plan.draw(dice)
        durability, is_async, turns = dice.choice(("sync", "async", "exit")), dice.random() < 0.3, dice.randint(2, 5)
        ours = ReprieveSaver(tmp_path / str(seed) if seed % 8 == shard and seed % 40 < 8 else None)
        players = [Player(compiled(plan, saver), durability, is_async) for saver in (InMemorySaver(), ours)]
        story = f"seed {seed}: {plan}, {durability}, {'async' if is_async else 'sync'}"
        for turn in range(turns):
            words = [player.act(random.Random(f"{seed}/{turn}"), turn) for player in players]
            story += f"\n{words}"
            assert words[0] == words[1], story
            theirs, mine = (player.account() for player in players)
            assert mine == theirs, story
        found = ours.verify_trail("t")
        assert found["ok"], (story, found)
        ours.close()
        played += 1
    assert played == len(range(shard, HISTORIES, SHARDS)) > 0
