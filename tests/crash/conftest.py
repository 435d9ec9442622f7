"""A crew on each server in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.crew import Crew
from tests.servers import Server


@pytest.fixture
def crew(redis_server: Server, tmp_path: Path) -> Iterator[Crew]:
    with Crew(redis_server, tmp_path) as crew:
        yield crew
