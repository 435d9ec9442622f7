"""A queue in applications of FastAPI, Django and Flask, each in a module of its own, which needs that framework.

Nothing else in streamdq imports this room.
"""
