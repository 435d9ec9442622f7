"""taskiq on Redis: a stream, and lists of schedules by the minute, which a scheduler reads anew each second."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from peer import Log, Producer, ready, run
from taskiq import TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker


class TaskiqProducer(Producer):
    version = f"{version('taskiq')} with taskiq-redis {version('taskiq-redis')}"
    bulk = "no call for many tasks"

    async def start(self) -> None:
        async def handle(job: dict) -> None: ...

        broker = RedisStreamBroker(self.url, consumer_id="0")
        self._task = broker.task(task_name="handle")(handle)
        self._source = ListRedisScheduleSource(self.url)
        await broker.startup()

    async def one(self, job: dict, due_ns: int | None) -> None:
        if due_ns is None:
            await self._task.kiq(job)
        else:
            await self._task.schedule_by_time(self._source, datetime.fromtimestamp(due_ns / 1e9, UTC), job)


async def work(url: str, log: Log, crash: bool) -> None:
    in_crash = {"idle_timeout": 2000, "unacknowledged_lock_timeout": 5.0} if crash else {}
    broker = RedisStreamBroker(url, consumer_id="0", **in_crash)

    @broker.task(task_name="handle")
    async def handle(job: dict) -> None:
        await log.note_async(job)

    await broker.startup()
    scheduler = TaskiqScheduler(broker, [ListRedisScheduleSource(url)])
    second = timedelta(seconds=1)
    ready()
    await asyncio.gather(
        run_receiver_task(broker, max_async_tasks=20 if crash else 100),
        run_scheduler_task(scheduler, interval=second, loop_interval=second),
    )


if __name__ == "__main__":
    run(TaskiqProducer, work)
