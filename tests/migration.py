"""A Cluster's slot that moves to another node."""

from __future__ import annotations

import time

from tests.servers import Cluster, Server


class Migration:
    """Of the slot of a hash tag, by hand and step by step, as redis-cli does it."""

    def __init__(self, cluster: Cluster, tag: str) -> None:
        self.cluster = cluster
        with cluster.client() as client:
            self.slot = client.keyslot(f"{{{tag}}}")
            owner = client.get_node_from_key(f"{{{tag}}}").port
        self.source = next(node for node in cluster.nodes if node.port == owner)
        self.target = next(node for node in cluster.nodes if node.port != owner)
        self._ids = {node: self._ask(node, "CLUSTER MYID") for node in (self.source, self.target)}

    @staticmethod
    def _ask(node: Server, *words: object) -> object:
        with node.client() as client:
            reply = client.execute_command(*words)
        return reply.decode() if isinstance(reply, bytes) else reply

    def begin(self) -> None:
        self._ask(self.target, "CLUSTER SETSLOT", self.slot, "IMPORTING", self._ids[self.source])
        self._ask(self.source, "CLUSTER SETSLOT", self.slot, "MIGRATING", self._ids[self.target])

    def move_one(self) -> bool:
        """False: the source has none left."""
        with self.source.client() as source:
            keys = source.execute_command("CLUSTER GETKEYSINSLOT", self.slot, 1)
            if keys:
                source.execute_command("MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *keys)
        return bool(keys)

    def move_all(self, pause_s: float = 0) -> None:
        """With a pause after each key, in which others ask for it."""
        while self.move_one():
            time.sleep(pause_s)  # real time: others may ask for the key; nothing depends on it

    def end(self) -> None:
        for node in (self.target, self.source, *self.cluster.nodes):
            self._ask(node, "CLUSTER SETSLOT", self.slot, "NODE", self._ids[self.target])

    def asked(self) -> int:
        """How often the target got ASKING."""
        with self.target.client() as client:
            return int(client.info("commandstats").get("cmdstat_asking", {"calls": 0})["calls"])
