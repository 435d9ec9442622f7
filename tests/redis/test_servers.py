"""What the other tests stand on: the servers they start."""

import pytest
import redis

from tests.servers import Binary, Cluster, Server


def test_server_keeps_its_data_over_restart_and_kill(binary: Binary) -> None:
    with Server(binary, appendonly=True) as server:
        with server.client(decode_responses=True) as client:
            client.set("key", "kept")
        server.restart()
        server.kill()
        server.start()
        with server.client(decode_responses=True) as client:
            assert client.get("key") == "kept"
    assert not server.running
    assert not server.directory.exists()


def test_server_on_a_unix_socket_with_a_password(binary: Binary) -> None:
    with Server(binary, unix=True, options={"requirepass": "secret"}) as server, server.client() as client:
        assert client.ping()


def test_redis_server_is_empty_and_comes_back(redis_server: Server) -> None:
    with redis_server.client() as client:
        assert client.dbsize() == 0
        client.set("key", "left over")
    redis_server.kill()
    redis_server.flush()
    with redis_server.client() as client:
        assert client.dbsize() == 0


@pytest.mark.foreign_keys
def test_cluster_spreads_keys_over_its_nodes(redis_cluster: Cluster) -> None:
    with redis_cluster.client() as client:
        for number in range(100):
            client.set(f"key-{number}", number)
    sizes = []
    for node in redis_cluster.nodes:
        with node.client() as each:
            assert isinstance(each, redis.Redis)
            sizes.append(each.dbsize())
    assert sum(sizes) == 100
    assert all(sizes)
