"""The permissions of the operations page."""

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))
            ],
            options={
                "verbose_name": "operations page",
                "verbose_name_plural": "operations page",
                "managed": False,
                "default_permissions": ("view",),
                "permissions": (
                    ("produce", "Can cancel, reschedule and run jobs and schedules"),
                    ("administer", "Can kick and purge dead letters, pause topics and change their settings"),
                ),
            },
        ),
    )
