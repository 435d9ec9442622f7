"""An S3 server on this machine, for as long as the tests run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import boto3
import pytest
import s3fs
from moto.server import ThreadedMotoServer


@contextmanager
def s3_server() -> Iterator[str]:
    """Yields its URL."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


class Bucket:
    """An empty bucket, and an environment in which it is found."""

    def __init__(self, endpoint: str, name: str, patch: pytest.MonkeyPatch) -> None:
        self.endpoint = endpoint
        self.name = name
        self.url = f"s3://{name}"
        self._patch = patch
        self.environment(
            AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID="streamdq", AWS_SECRET_ACCESS_KEY="secret",
            AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", AWS_MAX_ATTEMPTS="1",
        )  # fmt: skip
        self._client = boto3.client("s3")
        self._client.create_bucket(Bucket=name)

    def environment(self, **variables: str | None) -> None:
        """None: not set. fsspec keeps file systems for later; those know the environment of before."""
        for name, value in variables.items():
            if value is None:
                self._patch.delenv(name)
            else:
                self._patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()

    @property
    def buckets(self) -> list[str]:
        return [found["Name"] for found in self._client.list_buckets()["Buckets"]]

    @property
    def keys(self) -> list[str]:
        """Every object in it."""
        return [found["Key"] for found in self._client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """No key is known to the server meanwhile."""
        self._ask("reset-auth", b"0")
        try:
            yield
        finally:
            self._ask("reset-auth", b"inf")

    def end(self) -> None:
        s3fs.S3FileSystem.clear_instance_cache()
        for key in self.keys:
            self._client.delete_object(Bucket=self.name, Key=key)
        self._client.delete_bucket(Bucket=self.name)
        self._client.close()

    def _ask(self, what: str, body: bytes) -> None:
        with urlopen(Request(f"{self.endpoint}/moto-api/{what}", body, {"Content-Type": "text/plain"})) as reply:
            reply.read()
