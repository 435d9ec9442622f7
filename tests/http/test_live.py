"""What the tests' own servers leave behind."""

from __future__ import annotations

import pytest

from tests.http import live
from tests.servers import Server


def test_a_server_that_does_not_listen_in_time_is_ended(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[live.Live] = []

    def too_late(*_: object) -> None:
        raise TimeoutError

    class Kept(live.Live):
        def __init__(self) -> None:
            started.append(self)
            super().__init__(redis_server.url)

    monkeypatch.setattr(live, "until", too_late)
    with pytest.raises(TimeoutError):
        Kept()
    assert started[0].process.returncode is not None
