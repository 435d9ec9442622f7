"""One Spark for the whole suite: starting it costs seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streamdq_spark.session import SMALL, session
from tests.conftest import BINARIES
from tests.servers import Pool, Server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("local[2]", name="streamdq-tests", settings=SMALL) as running:
        yield running


@pytest.fixture
def newest(servers: Pool) -> Server:
    """The newest of the machine's Redis servers, empty: for what is about Spark and not about Redis."""
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    server = servers[BINARIES[-1]]
    server.flush()
    return server
