"""The operations page in Django's admin, where the extra ``http`` is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import path, re_path, reverse
from django.views.decorators.csrf import csrf_exempt

from .models import Queue


class OperationsAdmin(admin.ModelAdmin):  # type: ignore[misc] # Django has no types
    """Its list of objects is the page, and all below it."""

    def get_urls(self) -> list[Any]:
        # Its forms have no token of Django's. The page itself refuses those that come from another site.
        page = self.admin_site.admin_view(csrf_exempt(self._page))
        return [path("", page, name="streamdq_queue_changelist"), re_path("^.+$", page)]

    def has_add_permission(self, *_: Any) -> bool:
        return False

    def has_change_permission(self, *_: Any) -> bool:
        return False

    def has_delete_permission(self, *_: Any) -> bool:
        return False

    def _page(self, request: HttpRequest) -> HttpResponse:
        from .operations import answer

        if not self.has_view_permission(request):
            raise PermissionDenied
        base = reverse(f"{self.admin_site.name}:streamdq_queue_changelist").rstrip("/")
        return answer(request, base, reverse(f"{self.admin_site.name}:index"))


if find_spec("fastapi") is not None and find_spec("jinja2") is not None:
    admin.site.register(Queue, OperationsAdmin)
