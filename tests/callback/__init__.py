"""Callbacks: a worker, and receivers of every kind."""
