"""A Django project with an admin, whose tests tests/contrib/test_django_admin.py runs."""
