"""Grafana dashboards and Prometheus rules, and what builds them: `make dashboards`.

A figure is declared once, in ``signals``, with its query, unit and description; panels, recording rules and alerts use
it from there. What is built is committed, in ``grafana/`` and ``prometheus/``.
"""
