"""Tells other systems of observation what queues and workers do: OpenTelemetry and Sentry.

Nothing else in streamdq imports this room, so what it needs is needed by its users alone.
"""
