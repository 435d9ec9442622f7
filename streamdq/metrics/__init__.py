"""The Prometheus metrics: their declarations, and counting moves, take-overs and duplicates."""
