"""Who is alive: one process is the mover at work (election.py), and workers that died lose what they hold
(dead_workers.py).

Both go by signs of life that processes give in Redis. The mover renews its lease every second; a standby looks at the
lease in its turn; a worker that holds claims gives a sign every second (worker/signs.py). An idle worker has nothing to
lose, and gives none.
"""
