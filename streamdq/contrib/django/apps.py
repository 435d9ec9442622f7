"""What Django knows this app by."""

from django.apps import AppConfig


class StreamdqConfig(AppConfig):  # type: ignore[misc] # Django has no types
    name = "streamdq.contrib.django"
    label = "streamdq"
    verbose_name = "streamdq"
    default_auto_field = "django.db.models.BigAutoField"
