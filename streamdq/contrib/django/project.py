"""For ``streamdq worker streamdq.contrib.django.project:worker``, which ``streamdq_worker`` runs: the project's worker,
imported when Django is set up, also in each of several processes.
"""

import os

import django

from ...cli.target import import_worker

django.setup()
worker = import_worker(os.environ["STREAMDQ_WORKER"])
