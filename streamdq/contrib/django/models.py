"""What the operations page is to Django's admin. It has no table: jobs are in Redis."""

from django.db import models


class Queue(models.Model):  # type: ignore[misc] # Django has no types
    """Carries the permissions of the page, and its place in the admin."""

    class Meta:  # noqa: D106 - as Django has it
        managed = False
        verbose_name = verbose_name_plural = "operations page"
        default_permissions = ("view",)
        permissions = (
            ("produce", "Can cancel, reschedule and run jobs and schedules"),
            ("administer", "Can kick and purge dead letters, pause topics and change their settings"),
        )
