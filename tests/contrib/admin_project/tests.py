"""The operations page in the admin: who sees it, who may do what, and that other sites' forms are refused."""

from __future__ import annotations

import http.client
import io
import os
from collections.abc import Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode, urlsplit

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.core.handlers.asgi import ASGIRequest
from django.core.management import call_command
from django.test import Client, LiveServerTestCase, TestCase, override_settings

from streamdq import Queue
from streamdq.contrib.django.operations import _raw_path

PAGE = "/admin/streamdq/queue/"
FORM = "application/x-www-form-urlencoded"
OWN = {"HTTP_ORIGIN": "http://testserver"}


def admin_user(name: str, permissions: Sequence[str]) -> User:
    user = User.objects.create_user(name, password="secret", is_staff=True)
    user.user_permissions.set([Permission.objects.get(codename=one) for one in permissions])
    return user


def dead_letter(id: str) -> None:
    with Queue(os.environ["STREAMDQ_URL"]) as queue:
        queue.enqueue("order.close", {"order_id": 42}, id=id)
        while (claim := queue.take("order.close")) and claim.job.id != id:  # what other tests have left
            claim.finish()
        assert claim
        claim.bury("card expired")


def waiting(id: str) -> bool:
    with Queue(os.environ["STREAMDQ_URL"]) as queue:
        job = queue.get("order.close", id)
        return job is not None and job.state != "dead"


class Access(TestCase):  # type: ignore[misc] # Django has no types
    client: Client

    @classmethod
    def setUpTestData(cls) -> None:
        admin_user("viewer", ["view_queue"])
        admin_user("producer", ["view_queue", "produce"])
        admin_user("operator", ["view_queue", "administer"])
        admin_user("other", [])
        User.objects.create_user("customer", password="secret")
        User.objects.create_superuser("root", password="secret")

    def page_as(self, name: str, path: str = "") -> Any:
        assert self.client.login(username=name, password="secret")
        return self.client.get(PAGE + path)

    def test_strangers_and_ordinary_users_have_to_sign_in(self) -> None:
        for client in (Client(), self.client):
            for path in ("", "topics/order.close", "static/app.css", "v1/stats"):
                answer = client.get(PAGE + path)
                self.assertRedirects(answer, f"/admin/login/?next={PAGE}{path}", fetch_redirect_response=False)
            self.client.login(username="customer", password="secret")

    def test_admins_without_the_permission_are_refused(self) -> None:
        assert self.page_as("other").status_code == 403
        assert self.client.get("/admin/").content.decode().count(PAGE) == 0

    def test_the_admin_links_to_it_and_it_links_back(self) -> None:
        answer = self.page_as("viewer")
        self.assertContains(answer, '<a href="/admin/">Admin</a>', html=True)
        self.assertContains(answer, "viewer")
        self.assertNotContains(answer, "Sign out")
        self.assertContains(self.client.get("/admin/"), PAGE)
        assert "frame-ancestors 'none'" in answer["Content-Security-Policy"]

    def test_its_files_come_from_below_it(self) -> None:
        self.assertContains(self.page_as("viewer"), f'href="{PAGE}static/app.css"')
        answer = self.client.get(f"{PAGE}static/app.css")
        assert (answer.status_code, answer["Content-Type"]) == (200, "text/css; charset=utf-8")
        assert b"".join(answer) == files("streamdq.http").joinpath("static/app.css").read_bytes()

    def test_a_job_whose_id_has_a_space_has_its_page(self) -> None:
        dead_letter("order 42")
        self.assertContains(self.page_as("viewer", "topics/order.close/jobs/order%2042"), "card expired")

    def test_an_id_with_a_slash_has_its_page_where_the_server_tells_the_path(self) -> None:
        dead_letter("order/42")
        self.client.login(username="viewer", password="secret")
        path = f"{PAGE}topics/order.close/jobs/order%2F42"
        self.assertContains(self.client.get(path, RAW_URI=path), "card expired")

    def test_an_asgi_server_answers_the_same(self) -> None:
        dead_letter("asgi")
        self.async_client.force_login(User.objects.get(username="viewer"))

        async def asked(path: str) -> Any:
            return await self.async_client.get(path)

        get = async_to_sync(asked)
        self.assertContains(get(PAGE), "order.close")
        self.assertContains(get(f"{PAGE}topics/order.close/jobs/asgi"), "card expired")
        sent = {"type": "http", "method": "GET", "path": "/a/b", "raw_path": b"/a%2Fb", "headers": []}
        assert _raw_path(ASGIRequest(sent, io.BytesIO())) == b"/a%2Fb"

    def test_each_permission_allows_its_own(self) -> None:
        may_kick = {"viewer": 403, "producer": 403, "operator": 303, "root": 303}
        for name, status in may_kick.items():
            dead_letter(f"kick-{name}")
            self.page_as(name)
            answer = self.client.post(f"{PAGE}topics/order.close/jobs/kick-{name}/kick", "group=default", FORM, **OWN)
            assert (name, answer.status_code, waiting(f"kick-{name}")) == (name, status, status == 303)
        for name, status in {"viewer": 403, "producer": 303, "operator": 303}.items():
            with Queue(os.environ["STREAMDQ_URL"]) as queue:
                queue.enqueue("order.close", {}, id=f"cancel-{name}", delay="1h")
            self.page_as(name)
            answer = self.client.post(
                f"{PAGE}topics/order.close/jobs/cancel-{name}/cancel", "group=default", FORM, **OWN
            )
            assert (name, answer.status_code, waiting(f"cancel-{name}")) == (name, status, status == 403)

    def test_a_form_of_another_site_is_refused(self) -> None:
        dead_letter("safe")
        client = Client(enforce_csrf_checks=True)
        client.login(username="root", password="secret")
        for headers in (
            {"HTTP_ORIGIN": "http://evil.example"}, {"HTTP_ORIGIN": "null"}, {}, {"HTTP_SEC_FETCH_SITE": "cross-site"},
            {**OWN, "HTTP_SEC_FETCH_SITE": "cross-site"}, {"HTTP_ORIGIN": "http://testserver.evil.example"},
        ):  # fmt: skip
            answer = client.post(f"{PAGE}topics/order.close/jobs/safe/kick", "group=default", FORM, **headers)
            assert (headers, answer.status_code, waiting("safe")) == (headers, 403, False)
        answer = client.post(f"{PAGE}topics/order.close/jobs/safe/kick", "group=default", FORM, **OWN)
        assert (answer.status_code, waiting("safe")) == (303, True)

    def test_the_api_below_it_does_not_take_the_admins_session(self) -> None:
        for path in ("v1/stats", "v1/topics"):
            assert self.page_as("root", path).status_code == 401
        answer = self.client.post(f"{PAGE}v1/topics/order.close/jobs", "{}", "application/json", **OWN)
        assert answer.status_code == 401

    def test_no_header_makes_somebody_else_of_a_user(self) -> None:
        self.client.login(username="viewer", password="secret")
        answer = self.client.get(PAGE, HTTP_AUTHORIZATION="Bearer sdq_x", HTTP_STREAMDQ_SIGNED_IN_USER="root")
        self.assertContains(answer, "viewer")
        assert self.client.get(f"{PAGE}login").status_code == 303

    @override_settings(USE_X_FORWARDED_HOST=True)
    def test_behind_a_proxy_the_host_is_the_one_that_django_finds(self) -> None:
        dead_letter("proxied")
        self.client.login(username="root", password="secret")
        headers = {"HTTP_X_FORWARDED_HOST": "shop.example", "HTTP_ORIGIN": "http://shop.example"}
        answer = self.client.post(f"{PAGE}topics/order.close/jobs/proxied/kick", "group=default", FORM, **headers)
        assert (answer.status_code, waiting("proxied")) == (303, True)

    def test_the_models_have_the_migrations_that_they_need(self) -> None:
        call_command("makemigrations", "streamdq", check=True, dry_run=True, verbosity=0)


class Live(LiveServerTestCase):  # type: ignore[misc] # Django has no types
    """Over a real connection, as a browser does it."""

    def test_signing_in_leads_to_the_page_and_its_button_works(self) -> None:
        User.objects.create_superuser("root", password="secret")
        dead_letter("live")
        self.cookies: dict[str, str] = {}
        to = self.ask("GET", PAGE)[1]
        assert 'name="username"' in self.ask("GET", to)[2]
        form = {
            "username": "root",
            "password": "secret",
            "csrfmiddlewaretoken": self.cookies["csrftoken"],
            "next": PAGE,
        }
        assert self.ask("POST", to, form)[:2] == (302, PAGE)
        assert "order.close" in self.ask("GET", PAGE)[2]
        assert self.ask("POST", f"{PAGE}topics/order.close/jobs/live/kick", {"group": "default"})[0] == 303
        assert waiting("live")

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> tuple[int, str, str]:
        """Status, where it leads, and the page."""
        host = urlsplit(self.live_server_url).netloc
        headers = {"Origin": self.live_server_url, "Content-Type": FORM}
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            connection.request(method, path, urlencode(form or {}) if method == "POST" else None, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for cookie in answer.msg.get_all("Set-Cookie") or ():
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer.status, answer.getheader("Location") or "", text
