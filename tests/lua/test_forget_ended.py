"""forget_ended: forgets results and taken ids of jobs that are gone."""

from __future__ import annotations

from typing import Any

from tests.lua.shard import Shard


def forget(shard: Shard, *ids: str, only_count: bool = False) -> Any:
    return shard.run(shard.scripts.forget_ended(shard.k, ids, only_count=only_count))


def end(shard: Shard, id: str) -> None:
    shard.enqueue_unique(id, rule="60000|||")
    shard.move()
    shard.finish(shard.take())


def test_results_and_taken_ids_go(shard: Shard) -> None:
    shard.topic(result="1h")
    end(shard, "a")
    end(shard, "b")
    assert forget(shard, "a", "unknown", only_count=True) == (1, 1)
    assert forget(shard, "a", "unknown") == (1, 1)
    assert forget(shard, "a") == (0, 0), "again"
    assert shard.redis("EXISTS", shard.k.result_of("default", "b")) == 1
    assert shard.redis("HKEYS", shard.k.taken) == [b"b"]
    shard.check()


def test_an_id_that_a_job_has_is_left_alone(shard: Shard) -> None:
    shard.enqueue_unique("a", rule="60000|||")
    assert forget(shard, "a") == (0, 0)
    assert shard.redis("HKEYS", shard.k.taken) == [b"a"]


def test_results_of_a_group_that_keeps_none_any_more(shard: Shard) -> None:
    shard.topic(result="1h")
    end(shard, "a")
    shard.topic(result=0)
    assert forget(shard, "a") == (1, 1)
