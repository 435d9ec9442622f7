"""Spark Connect: a Spark that runs elsewhere, asked over the network by a client that needs no Java."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamdq.errors import MissingExtra

from .errors import AnalysisError

SCHEME = "sc://"
PORT = 15002
_LONGEST_ANSWER_S = 10
GONE = "the Spark Connect server has ended, or can't be reached any more: check that it is running, and what it logged"
_RETRIES, _LONGEST_WAIT_MS = 9, 5_000
"""A call fails after about half a minute without a server. By default it would after ten, but a server that has been
started again has lost what an analysis needs.
"""


def is_remote(master: str) -> bool:
    return master.startswith(SCHEME)


def connected(url: str) -> SparkSession:
    """A session of its own on the server at `sc://HOST:PORT`.

    A call waits half a minute for a server that can't be reached.

    Raises:
        MissingExtra: the packages of the client are missing.
        AnalysisError: no Spark answers there.
    """
    _check(url)
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy

        spark = SparkSession.builder.remote(url).create()
        spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MS)])
        return spark
    except ImportError as error:
        raise MissingExtra("grpcio", "connect") from error
    except PySparkException as error:
        raise AnalysisError(_silent(url, str(error).splitlines()[0])) from error


def give_up(spark: SparkSession) -> None:
    """Waits for the server no more. To stop the session would otherwise ask it again and again, too."""
    spark.client.set_retry_policies([])


def _check(url: str) -> None:
    """Whether anything listens there: Spark's client would try for minutes."""
    place = urlsplit(url)
    try:
        with socket.create_connection((place.hostname or "", place.port or PORT), _LONGEST_ANSWER_S):
            pass
    except (OSError, ValueError) as error:
        raise AnalysisError(_silent(url, str(error))) from error


def _silent(url: str, why: str) -> str:
    return f"no Spark Connect server answers at {url} ({why}): check --master, and that the server is running"
