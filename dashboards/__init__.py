"""Grafana dashboards and Prometheus rules, and what builds them: `make dashboards`.

Each figure is declared once, in ``signals``, with its query, unit and description. Panels, recording rules and alerts
use that declaration. The built files are committed, in ``grafana/`` and ``prometheus/``.
"""
