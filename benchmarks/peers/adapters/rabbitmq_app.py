"""RabbitMQ: a delay is a sum of powers of two, in milliseconds. A queue for each power lets messages expire after it
and hands them to the exchange of the next smaller one. A message's routing key has a 1 for each queue that it waits in.
"""

from __future__ import annotations

import json
import threading
from importlib.metadata import version

import pika
from peer import Log, Producer, delay_ms, dumped, ready, run

POWERS = range(23)  # up to 2 h 19 min
READY = "ready"
TRANSIENT = pika.BasicProperties(delivery_mode=1)


def connect(url: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0  # the connection waits for orders without looking at what comes in
    return pika.BlockingConnection(parameters)


def exchange(power: int) -> str:
    return f"delay.{power}" if power >= 0 else READY


def declare(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    channel.exchange_declare(READY, "topic")
    channel.queue_declare(READY)
    channel.queue_bind(READY, READY, "#")
    for power in POWERS:
        channel.exchange_declare(exchange(power), "topic")
        arguments = {"x-message-ttl": 2**power, "x-dead-letter-exchange": exchange(power - 1)}
        channel.queue_declare(exchange(power), arguments=arguments)
        before = "*." * (POWERS[-1] - power)
        after = ".#" if power else ""
        channel.queue_bind(exchange(power), exchange(power), f"{before}1{after}")
        channel.exchange_bind(exchange(power - 1), exchange(power), f"{before}0{after}")


class RabbitmqProducer(Producer):
    version = f"pika {version('pika')}"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        connection = connect(url)
        self._unconfirmed, self._confirmed = connection.channel(), connection.channel()
        self._confirmed.confirm_delivery()
        declare(self._confirmed)

    def one(self, job: dict, due_ns: int | None) -> None:
        self._publish(self._confirmed, job, due_ns)

    def bulk(self, jobs: list[dict], dues: list) -> None:
        for job, due_ns in zip(jobs, dues, strict=True):
            self._publish(self._unconfirmed, job, due_ns)
        self._unconfirmed.queue_declare(READY, passive=True)  # answered when it has read all before it

    def _publish(self, channel: object, job: dict, due_ns: int | None) -> None:
        wait_ms = 0 if due_ns is None else delay_ms(due_ns)
        first = exchange(wait_ms.bit_length() - 1)
        channel.basic_publish(first, ".".join(f"{wait_ms:0{len(POWERS)}b}"), dumped(job).encode(), TRANSIENT)


def work(url: str, log: Log, crash: bool) -> None:
    def serve() -> None:
        channel = connect(url).channel()
        declare(channel)
        channel.basic_qos(prefetch_count=1 if crash else 100)
        for method, _, text in channel.consume(READY):
            log.note(json.loads(text))
            channel.basic_ack(method.delivery_tag)

    threads = [threading.Thread(target=serve) for _ in range(20 if crash else 1)]
    for thread in threads:
        thread.start()
    ready()


if __name__ == "__main__":
    run(RabbitmqProducer, work)
