"""The Prometheus metrics: their declarations, and the counters of moves and duplicates."""
