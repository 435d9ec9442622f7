"""What type checkers must accept, and report: each line that ends with ``# wrong``. Checked, never run."""

from __future__ import annotations

from pydantic import BaseModel

from streamdq import AsyncQueue, Attempt, CallNext, Job, NewJob, Queue, RunningJob, Topic, Worker
from streamdq.operations.jobs.pipeline import Pipelined
from streamdq.testing import Memory, RunWorker


class CloseOrder(BaseModel):
    order_id: int


class Mail(BaseModel):
    to: str


orders = Topic("order.close", CloseOrder, ttr="30s", retry="15s 3m", version=2)
worker = Worker()


@worker.handler(orders)
async def close(order: CloseOrder, job: Job) -> None: ...


@worker.handler(orders)
async def close_in_time(order: CloseOrder, job: RunningJob) -> None:
    job.touch("30s")
    left_s: float = job.time_left_s()
    made: Job = await job.async_queue.enqueue("mail", {"left_s": left_s, "id": order.order_id})
    job.queue.cancel(made.topic, made.id)


@worker.middleware
async def keeps_alive(attempt: Attempt, call_next: CallNext) -> None:
    for job in attempt.jobs:
        job.touch()
    await call_next()


@worker.handler(orders)
def close_any(order: BaseModel) -> None: ...


@worker.handler(orders, batch=10)
async def close_all(bodies: list[CloseOrder], jobs: list[RunningJob]) -> None: ...


@worker.handler("mail", ttr="1s", version=3)
async def by_name(mail: Mail) -> None: ...


@worker.schedule("nightly", cron="0 3 * * *")
@worker.handler("nightly")
def nightly() -> None: ...


async def right(queue: Queue, awaited: AsyncQueue) -> list[Job | Pipelined]:
    made: Job = orders.enqueue(queue, CloseOrder(order_id=1), delay="30m", id="a", on_conflict="keep")
    later: Job = await orders.enqueue(awaited, CloseOrder(order_id=1))
    orders.enqueue_many(queue, [NewJob(CloseOrder(order_id=1), delay="30m")])
    with queue.pipeline() as pipe:
        collected: Pipelined = orders.enqueue(pipe, CloseOrder(order_id=1))
    async with awaited.pipeline() as async_pipe:
        also: Pipelined = await orders.enqueue(async_pipe, CloseOrder(order_id=1))
    ids: list[str] = (await orders.enqueue_many(awaited, [])).existing
    ttr_ms: list[int] = [orders.configure(queue).ttr_ms, (await orders.configure(awaited)).ttr_ms]
    queue.enqueue_many("mail", [NewJob({"to": ""}), {"body": 1}])
    untyped: NewJob = NewJob(1)
    by_handler: list[Job] = [close.enqueue(queue, CloseOrder(order_id=1), delay="30m")]
    by_handler += [await close_all.enqueue(awaited, CloseOrder(order_id=1)), made]
    await close(CloseOrder(order_id=untyped.body + len(ids) + len(ttr_ms)), made)
    return [made, later, collected, also]


def test_fixtures(streamdq_queue: Queue, streamdq_server: Memory, streamdq_run: RunWorker) -> None:
    with streamdq_server.bind(worker):
        streamdq_queue.enqueue("nightly")
    streamdq_run(worker, "20h", within_s=60)
    streamdq_run(worker, 0)
    streamdq_run("worker")  # wrong


async def not_right(queue: Queue, awaited: AsyncQueue) -> None:
    orders.enqueue(queue, Mail(to="a"))  # wrong
    orders.enqueue(queue, {"order_id": 1})  # wrong
    await orders.enqueue(awaited, Mail(to="a"))  # wrong
    orders.enqueue_many(queue, [NewJob(Mail(to="a"))])  # wrong
    orders.enqueue(queue, CloseOrder(order_id=1), dealy="1s")  # wrong
    close.enqueue(queue, Mail(to="a"))  # wrong
    close.enqueue(queue, CloseOrder(order_id=1), dealy="1s")  # wrong
    close_all.enqueue(queue, [CloseOrder(order_id=1)])  # wrong
    orders.enqueue(queue, CloseOrder(order_id=1), version=3)  # wrong
    queue.enqueue("mail", {}, dealy="1s")  # wrong
    queue.enqueue("mail", {}).result()  # wrong
    queue.enqueue("mail", {}).touch()  # wrong
    with queue.take("mail") as claim:
        if claim is not None:
            claim.job.touch()  # wrong


@worker.handler(orders)  # wrong
async def takes_another(order: Mail) -> None: ...


@worker.handler(orders, batch=5)  # wrong
async def takes_one(order: CloseOrder) -> None: ...


@worker.handler(orders)  # wrong
async def takes_many(order: list[CloseOrder]) -> None: ...
