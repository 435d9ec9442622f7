"""streamdq.contrib.flask, in real applications."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from streamdq.contrib.flask import Streamdq
from streamdq.testing import Memory, memory


@pytest.fixture
def server() -> Iterator[Memory]:
    made = memory()
    yield made
    made.close()


jobs = Streamdq()


def shop(url: str | None = None, namespace: str | None = None) -> Flask:
    app = Flask(__name__)
    app.config.update(STREAMDQ_URL=url, STREAMDQ_NAMESPACE=namespace, TESTING=True)
    jobs.init_app(app)

    @app.put("/orders/<int:number>")
    def order(number: int) -> str:
        return jobs.queue.enqueue("order.close", {"n": number}, id=f"order-{number}", delay="30m").id

    return app


def test_views_get_the_queue(server: Memory) -> None:
    with server.queue("ns") as queue:
        assert shop(server.url, "ns").test_client().put("/orders/42").text == "order-42"
        job = queue.get("order.close", "order-42")
        assert job is not None
        assert (job.body, job.state) == ({"n": 42}, "delayed")


def test_each_application_has_its_own(server: Memory) -> None:
    other = memory()
    one, two = shop(server.url), shop(other.url)
    with server.queue() as here, other.queue() as there:
        one.test_client().put("/orders/1")
        two.test_client().put("/orders/2")
        assert [here.get("order.close", f"order-{n}") is not None for n in (1, 2)] == [True, False]
        assert [there.get("order.close", f"order-{n}") is not None for n in (1, 2)] == [False, True]
    other.close()


def test_the_url_may_come_from_the_environment(server: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_URL", server.url)
    app = Flask(__name__)
    extension = Streamdq(app)
    with app.app_context(), server.queue() as queue:
        assert extension.queue is extension.queue is app.extensions["streamdq"]
        extension.queue.enqueue("t", id="a", delay="1h")
        assert queue.get("t", "a") is not None


def test_it_works_without_redis_until_the_first_call() -> None:
    assert "streamdq" in shop("redis://127.0.0.1:1/0").extensions


def test_it_says_what_is_missing(server: Memory) -> None:
    with pytest.raises(RuntimeError, match="application context"):
        _ = jobs.queue
    with Flask(__name__).app_context(), pytest.raises(RuntimeError, match=r"call Streamdq\.init_app\(app\)"):
        _ = jobs.queue
    app = shop(server.url)
    with pytest.raises(RuntimeError, match="call init_app once"):
        jobs.init_app(app)
