"""Where callbacks never go: every way of naming an address that is not public, against a server that listens there."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from ipaddress import ip_network
from itertools import cycle
from pathlib import Path
from typing import cast

import pytest
import uvloop
from aiohttp.abc import ResolveResult
from yarl import URL

from streamdq.callback import CallbackSettings
from streamdq.callback.address import NOT_PUBLIC, AddressRefused, AddressRules
from streamdq.callback.client import CallbackAddressRefused, CallbackFailed, CallbackUnreachable, Client
from streamdq.callback.lookup import Lookup
from streamdq.callback.target import TargetRefused, Targets
from streamdq.errors import InvalidInput
from streamdq.keys import NamespaceKeys
from tests.callback.conftest import caller
from tests.callback.receiver import Receiver, answer, receiving
from tests.cases import each
from tests.redis.harness import NAMESPACE, Space
from tests.servers import Server, free_port
from tests.waiting import HANG_S

HAS_IPV6 = Path("/proc/net/if_inet6").exists()
PEM = Path(__file__).parent / "receiver.pem"

LOOPBACK_HOSTS = """
127.0.0.1 127.0.0.2 127.255.255.254 127.1 127.0.1 0x7f.1 0x7f.0.0.1 0x7f000001 0X7F000001 0177.0.0.1 0177.1 017700000001
0o177.0.0.1 127.0.0.01 127.000.000.001 127.0.0.0x1 2130706433 02130706433 127.0.0.1. 127.1. 2130706433. 0 0. 0.0.0.0 0x0
localhost LOCALHOST localhost. localhost.. a.localhost a.localhost.
[::1] [0:0:0:0:0:0:0:1] [::0001] [::] [::1%25lo] [::1%lo] [fe80::1%25eth0] [::ffff:127.0.0.1] [::ffff:7f00:1]
[0:0:0:0:0:ffff:7f00:0001] [::127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::7f00:1] [2002:7f00:1::]
[2002:7f00:1::1] [2001::7f00:1] [fec0::1]
127。0。0。1 127．0．0．1 127｡0｡0｡1 １２７.0.0.1 ①②⑦.0.0.1 ⓵27.0.0.1 127%2e0%2e0%2e1 %31%32%37.0.0.1
loc%61lhost ⓛocalhost ｌocalhost xn-- xn--a.example
""".split()  # noqa: SIM905, RUF001
# With something in front of the host or after it that another parser may read otherwise.
AROUND = """
https://user@127.0.0.1:{port}/ https://user:pass@127.0.0.1:{port}/ https://:@127.0.0.1:{port}/ https://@127.0.0.1:{port}/
https://example.com@127.0.0.1:{port}/ https://127.0.0.1:{port}@example.com/ https://127.0.0.1:{port}#@example.com/
https://example.com:443@127.0.0.1:{port}/ https://127.0.0.1:{port}?@example.com/ https://127.0.0.1:{port}\\@example.com/
https://example.com\\@127.0.0.1:{port}/ https:/127.0.0.1:{port}/ https:127.0.0.1:{port}/ https:///127.0.0.1:{port}/
//127.0.0.1:{port}/ HTTPS://127.0.0.1:{port}/ hTTp://127.0.0.1:{port}/ ftp://127.0.0.1:{port}/ file:///etc/passwd
gopher://127.0.0.1:{port}/ ws://127.0.0.1:{port}/ http+unix://127.0.0.1:{port}/ unix:///run/redis.sock https://:{port}/
https://127.0.0.1:99999/ https://127.0.0.1:-1/ https://127.0.0.1:{port}x/ https://127.0.0.1:0/
""".split()  # noqa: SIM905
ELSEWHERE = """
10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 100.64.0.1 100.127.255.255 100.100.100.200 169.254.169.254
169.254.0.1 192.0.0.1 192.0.0.8 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1
168.63.129.16 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 0.0.0.1 0.255.255.255
fc00::1 fd00:ec2::254 fe80::1 febf::1 fec0::1 feff::1 ff02::1 ff0e::1 2001:db8::1 2002::1 2002:808:808::1 2001::1
2001:2::1 2001:10::1 2001:20::1 3fff::1 100::1 ::8.8.8.8 ::ffff:8.8.8.8 ::ffff:0:8.8.8.8 64:ff9b::8.8.8.8
64:ff9b:1::8.8.8.8 5f00::1 4000::1 8000::1 f000::1
""".split()  # noqa: SIM905
PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0
172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255
2606:4700::1111 2001:4860:4860::8888 2001:200::1 2003::1 2a00::1 3ffe::1
""".split()  # noqa: SIM905


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def refused_urls(port: int) -> list[str]:
    hosts = [*LOOPBACK_HOSTS, *map(bracketed, ELSEWHERE)]
    urls = [f"{scheme}://{host}:{port}/" for host in hosts for scheme in ("https", "http")]
    return urls + [url.format(port=port) for url in AROUND]


@pytest.fixture
async def everywhere() -> AsyncIterator[Receiver]:
    """Listens on every address of this machine, of both families where it has both."""
    receiver = Receiver()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(receiving(receiver, "0.0.0.0"))
        if HAS_IPV6:
            await stack.enter_async_context(receiving(receiver, "::"))
        yield receiver


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Nothing allowed but what is public."""
    async with Client(Targets(), CallbackSettings(), 10) as client:
        yield client


# -- the whole way


async def test_no_url_of_the_list_reaches_a_server_that_listens(
    space: Space, redis_server: Server, everywhere: Receiver
) -> None:
    """Through the worker. What Queue refuses already is put in as a careless producer would."""
    urls, sneaked = refused_urls(everywhere.port), b"https://sneaked.example/"
    with redis_server.client() as redis:
        key = NamespaceKeys(NAMESPACE).shard("t", 0).jobs
        for number, url in enumerate(urls):
            space.queue.enqueue("t", 1, id=f"j{number}", url=sneaked.decode(), retry="none")
            record = cast(bytes, redis.hget(key, f"j{number}"))
            redis.hset(key, f"j{number}", record.replace(sneaked, url.encode()))
    await space.burst(caller(space, "t", allow=""))
    assert everywhere.connections == 0
    for number, url in enumerate(urls):
        progress = space.job(f"j{number}").groups["default"]
        assert (url, progress.state, progress.reason, progress.attempt) == (url, "dead", "buried", 1)
    # It is the rules that kept them from it.
    space.queue.enqueue("t", 1, id="fine", url=f"http://127.0.0.1:{everywhere.port}/")
    await space.burst(caller(space, "t"))
    assert (space.state("fine"), everywhere.connections) == ("gone", 1)


# -- the address that is connected to, whatever the URL's check said


async def to_loopback(_self: Lookup, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
    """Names in the numeric ways that the system knows lead where it says, all others to this machine."""
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        address, kind = str(found[0][4][0]), found[0][0]
    except OSError:
        address, kind = "127.0.0.1", socket.AF_INET
    return [ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=0)]


@pytest.mark.parametrize("host", [*LOOPBACK_HOSTS, "any.example", "ip6-localhost"])
async def test_the_connection_itself_is_refused(
    client: Client, everywhere: Receiver, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(Lookup, "resolve", to_loopback)
    for scheme in ("http", "https"):
        with pytest.raises(CallbackFailed):
            await client.post(URL(f"{scheme}://{host}:{everywhere.port}/"), {}, b"1", HANG_S)
    assert everywhere.connections == 0


@each("address", ELSEWHERE)
def test_a_socket_is_not_made_for_an_address_that_is_not_public(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    where = (address, 443, 0, 0) if ":" in address else (address, 443)
    with pytest.raises(AddressRefused):
        AddressRules().socket_factory(trusted=False)((family, socket.SOCK_STREAM, 6, "", where))


@each("address", PUBLIC)
def test_public_addresses_are_not_refused(address: str) -> None:
    assert AddressRules().refusal(address) is None
    assert AddressRules(deny=[ip_network(address)]).refusal(address) == "denied by a setting"
    assert AddressRules(deny=[ip_network(address)]).refusal(address, trusted=True) == "denied by a setting"


@pytest.mark.parametrize("address", ["10.0.0.5", "::ffff:10.0.0.5", "64:ff9b::10.0.0.5", "::10.0.0.5", "2002:a00:5::1"])
def test_what_is_denied_is_so_in_every_form_and_to_trusted_hosts(address: str) -> None:
    assert AddressRules(deny=[ip_network("10.0.0.0/8")]).refusal(address, trusted=True) == "denied by a setting"
    assert AddressRules(deny=[ip_network("10.1.0.0/16")]).refusal(address, trusted=True) is None


async def test_a_name_that_has_only_addresses_with_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 443, 0, 2))]

    async with Client(Targets(["10.0.0.0/8"]), CallbackSettings(), 10) as client:
        monkeypatch.setattr(socket, "getaddrinfo", found)
        with pytest.raises(CallbackUnreachable, match=r"printer\.example can't be looked up"):
            await client.post(URL("https://printer.example/"), {}, b"1", HANG_S)


def test_zones_are_refused_however_they_come() -> None:
    rules = AddressRules()
    assert rules.refusal("2a00::1%eth0") == "has a zone"
    with pytest.raises(AddressRefused):
        rules.socket_factory(trusted=True)((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2a00::1", 443, 0, 2)))


def test_every_network_of_the_list_is_used() -> None:
    """By its first address and its last."""
    for network, why in NOT_PUBLIC:
        for address in (network[0], network[-1]):
            assert AddressRules().refusal(str(address)) is not None, why
            assert AddressRules(allow=[network]).refusal(str(address)) is None


async def test_a_name_that_leads_elsewhere_each_time_is_checked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of its answers are allowed. Connections are not kept and names not remembered, so each call asks anew."""
    answers = cycle(["127.0.0.2", "127.0.0.1"])
    asked: list[str] = []

    async def rotating(_self: Lookup, host: str, port: int = 0, **_: object) -> list[ResolveResult]:
        asked.append(next(answers))
        return [ResolveResult(hostname=host, host=asked[-1], port=port, family=socket.AF_INET, proto=0, flags=0)]

    monkeypatch.setattr(Lookup, "resolve", rotating)
    good = Receiver(answer(200, "Connection: close"))
    async with receiving(good, "127.0.0.2"):
        evil = Receiver()
        evil.port = good.port
        async with receiving(evil, "127.0.0.1"), Client(Targets(["127.0.0.2"]), CallbackSettings(), 10) as client:
            client._checked.connector._use_dns_cache = False  # type: ignore[union-attr]
            for _ in range(5):
                assert (await client.post(URL(f"http://rotating.example:{good.port}/"), {}, b"1", HANG_S)).status == 200
                with pytest.raises(CallbackAddressRefused, match="loopback"):
                    await client.post(URL(f"http://rotating.example:{good.port}/"), {}, b"1", HANG_S)
    assert (good.connections, evil.connections, asked) == (5, 0, ["127.0.0.2", "127.0.0.1"] * 5)


async def test_a_name_with_several_addresses_leads_to_those_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(_self: Lookup, host: str, port: int = 0, **_: object) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in ("127.0.0.1", "10.0.0.1", "127.0.0.2")
        ]

    monkeypatch.setattr(Lookup, "resolve", both)
    good, evil = Receiver(), Receiver()
    async with receiving(good, "127.0.0.2"):
        evil.port = good.port
        async with receiving(evil, "127.0.0.1"), Client(Targets(["127.0.0.2"]), CallbackSettings(), 10) as client:
            await client.post(URL(f"http://both.example:{good.port}/"), {}, b"1", HANG_S)
    assert (good.connections, evil.connections) == (1, 0)


async def test_a_name_that_leads_to_a_refused_address_is_tried_again(
    space: Space, everywhere: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names may lead elsewhere later, a literal address will not."""
    monkeypatch.setattr(Lookup, "resolve", to_loopback)
    space.queue.enqueue("t", 1, id="j1", url=f"https://any.example:{everywhere.port}/", retry="1h")
    async with space.serving(caller(space, "t", allow="")):
        await space.becomes("j1", "delayed")
    error = space.job("j1").groups["default"].error
    assert error == (
        "CallbackAddressRefused: the address of any.example is refused: loopback; "
        "--allow or STREAMDQ_CALLBACK_ALLOW can allow it"
    )
    assert everywhere.connections == 0


async def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    async with receiving() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with Client(Targets(["127.0.0.1"]), CallbackSettings(), 10) as client:
            await client.post(URL(receiver.url), {}, b"1", HANG_S)
        assert (proxy.connections, receiver.connections) == (0, 1)


# -- what settings allow


def test_what_is_allowed_may_also_be_called_over_http_and_on_any_port() -> None:
    targets = Targets(["10.1.0.0/16", "hooks.internal", "fd00::/8", "Old.Example"])
    for url in (
        "http://10.1.2.3:25/", "https://10.1.2.3/", "http://[fd00::1]:8000/", "http://hooks.internal:9/x", "http://old.example/",
        "https://OLD.example:22/",
    ):  # fmt: skip
        targets.check(url)
    for url in (
        "http://10.2.0.1/", "https://10.2.0.1/", "http://a.hooks.internal/", "http://example.com/", "https://example.com:22/",
        "https://example.com:25/", "https://example.com:0/", "https://hooks.internal./",
    ):  # fmt: skip
        with pytest.raises(TargetRefused):
            targets.check(url)
    assert targets.trusts(targets.check("https://hooks.internal/"))
    assert not targets.trusts(targets.check("https://example.com/"))


@pytest.mark.parametrize("url", ["https://example.com/", "https://example.com:8443/a?b=c#d", "https://xn--bcher-kva.example/",
                                 "https://bücher.example/", "https://1.1.1.1/", "https://[2606:4700::1111]:4430/",
                                 "https://a_b.example/", "https://1.example/"])  # fmt: skip
def test_public_https_urls_pass(url: str) -> None:
    checked = Targets().check(url)
    assert checked.scheme == "https"
    assert not checked.fragment


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "http://a", "a:80", "127.1", "0x7f000001", "", "a b", "*.example", "a/b"]
)
def test_an_entry_that_means_nothing_is_an_error(entry: str) -> None:
    with pytest.raises(InvalidInput, match="allow"):
        Targets([entry])
    with pytest.raises(InvalidInput, match="deny"):
        Targets(deny=[entry])


# -- certificates


def tls_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


async def test_certificates_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookup, "resolve", to_loopback)
    targets = Targets(["receiver.test", "other.test"])
    async with receiving(tls=tls_server()) as receiver:
        urls = [URL(f"https://{host}:{receiver.port}/") for host in ("receiver.test", "other.test")]
        async with Client(targets, CallbackSettings(), 10) as client:
            with pytest.raises(CallbackUnreachable, match="certificate: self-signed"):
                await client.post(urls[0], {}, b"1", HANG_S)
        async with Client(targets, CallbackSettings(ca_file=PEM), 10) as client:
            assert (await client.post(urls[0], {}, b"1", HANG_S)).status == 200
            with pytest.raises(CallbackUnreachable, match="certificate: Hostname mismatch"):
                await client.post(urls[1], {}, b"1", HANG_S)
    assert len(receiver.requests) == 1


async def test_what_speaks_no_tls_and_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(400))
        writer.close()

    async def unknown(*_: object, **__: object) -> list[ResolveResult]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(Targets(["127.0.0.1"]), CallbackSettings(), 10) as client:
        with pytest.raises(CallbackUnreachable, match=r"^127\.0\.0\.1: TLS: [A-Z_]+$"):
            await client.post(URL(f"https://127.0.0.1:{port}/"), {}, b"1", HANG_S)
        monkeypatch.setattr(Lookup, "resolve", unknown)
        with pytest.raises(CallbackUnreachable, match=r"^nobody\.example can't be looked up$"):
            await client.post(URL("https://nobody.example/"), {}, b"1", HANG_S)
        with pytest.raises(CallbackUnreachable, match=r"^127\.0\.0\.1: Connection refused$"):
            await client.post(URL(f"http://127.0.0.1:{free_port()}/"), {}, b"1", HANG_S)


def test_the_event_loop_of_production_refuses_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop connects in its own way, on the socket that was checked."""
    monkeypatch.setattr(Lookup, "resolve", to_loopback)

    async def call() -> None:
        async with receiving() as receiver:
            async with Client(Targets(), CallbackSettings(), 10) as client:
                with pytest.raises(CallbackAddressRefused):
                    await client.post(URL(f"https://any.example:{receiver.port}/"), {}, b"1", HANG_S)
            assert receiver.connections == 0
            async with Client(Targets(["any.example"]), CallbackSettings(), 10) as client:
                assert (await client.post(URL(f"http://any.example:{receiver.port}/"), {}, b"1", HANG_S)).status == 200

    uvloop.run(call())
