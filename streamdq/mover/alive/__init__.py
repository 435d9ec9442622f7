"""Who is alive: one process is the active mover (election.py), and workers that died lose what they hold
(dead_workers.py).

Both go by heartbeats that processes give in Redis. The mover renews its lease every second; a standby looks at the
lease in its turn; a worker that holds claims sends a heartbeat every second (worker/heartbeats.py). An idle worker has
nothing to lose, and gives none.
"""
