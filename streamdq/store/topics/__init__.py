"""Topics: the registry, this process's copy of it, and what shards know of their topic."""
