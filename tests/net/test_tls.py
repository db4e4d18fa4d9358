"""A whole cluster on TLS: masters, brokers and clients are real, certificates are made here."""

from __future__ import annotations

import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from tests.certificates import Authority
from tests.master.conftest import configuration
from tube.client import Client as BlockingClient
from tube.client import ClientOptions
from tube.client.twisted import Client
from tube.config import TlsConfig
from tube.errors import BadRequestError, ConfigError, UnreachableError
from tube.master import app
from tube.net.daemon import PortInUseError
from tube.net.tls import Certificates
from tube.testing import RunningCluster, running


def tls(authority: Authority, *more: str) -> list[str]:
    """Options of a server."""
    cert_file, key_file = authority.issue("server")
    return ["tls.port=0", f"tls.cert_file={cert_file}", f"tls.key_file={key_file}", *more]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@async_yield_fixture
async def cluster(tmp_path: Path, authority: Authority) -> AsyncIterator[RunningCluster]:
    """A master and a broker with plain and TLS ports, and the topic demo."""
    options = tls(authority)
    async with running(reactor, tmp_path, brokers=0, overrides=tuple(options)) as started:
        await started.start_broker(1, *options)
        await started.create_topic("demo", 2)
        yield started


def url(cluster: RunningCluster) -> str:
    assert cluster.master is not None
    return f"tubes://127.0.0.1:{cluster.master.tls_port}"


def trusting(authority: Authority, **options: object) -> ClientOptions:
    return ClientOptions(ca_file=authority.file, connect_s=2, close_s=2, **options)  # type: ignore[arg-type]


async def exchange(client: Client, cluster: RunningCluster, group: str) -> set[bool]:
    """Send and read a message; whether the connections of the broker are secure."""
    receipt = await client.producer("demo").send(b"hello")
    consumer = await client.consumer(["demo"], group)
    assert [m.value for m in await consumer.batches(wait_s=5)][:1] == [b"hello"]
    assert receipt.durable
    return {connection.secure for connection in cluster.brokers[1].connections.connections}


@pytest.mark.limit(20)
async def test_a_client_on_tls_goes_to_brokers_on_tls(cluster, authority) -> None:
    """And a plain one to their plain port, at the same time."""
    async with Client(reactor, url(cluster), trusting(authority)) as client:
        assert await exchange(client, cluster, "g1") == {True}
        async with Client(reactor, cluster.url) as plain:
            assert await exchange(plain, cluster, "g2") == {True, False}


@pytest.mark.limit(20)
async def test_the_blocking_client_speaks_tls(cluster, authority) -> None:
    """On asyncio, in a thread of its own."""

    def talk() -> list[bytes]:
        with BlockingClient(url(cluster), trusting(authority)) as client:
            client.producer("demo").send(b"hello").result(5)
            return [m.value for m in client.consumer(["demo"], "readers").batches(wait_s=5)]

    assert await deferToThread(talk) == [b"hello"]


@pytest.mark.limit(20)
async def test_a_server_that_is_not_trusted_is_refused(cluster, tmp_path) -> None:
    """By both drivers, in an error that says so; a plain server is no TLS server."""
    other = trusting(Authority(tmp_path, "other"))
    async with Client(reactor, url(cluster), other) as client:
        with pytest.raises(UnreachableError, match="TLS failed"):
            await client.consumer(["demo"], "readers")

    def talk(where: str) -> None:
        with BlockingClient(where, other) as client, pytest.raises(UnreachableError):
            client.consumer(["demo"], "readers")

    await deferToThread(talk, url(cluster))
    await deferToThread(talk, cluster.url.replace("tube://", "tubes://"))


def handshake(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=5)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def serial(connection: ssl.SSLSocket) -> object:
    found = connection.getpeercert()
    assert found is not None
    return found["serialNumber"]


@pytest.mark.limit(20)
async def test_a_changed_certificate_is_used_for_the_next_connection(cluster, authority) -> None:
    """Open ones go on; a broken pair of files changes nothing."""
    port = cluster.master.tls_port
    context = ssl.create_default_context(cafile=authority.file)
    async with Client(reactor, url(cluster), trusting(authority)) as client:
        await client.producer("demo").send(b"1")
        before = await deferToThread(handshake, port, context)
        cert_file, _ = authority.issue("server")
        after = await deferToThread(handshake, port, context)
        Path(cert_file).write_text("broken")
        still = await deferToThread(handshake, port, context)

        assert serial(before) != serial(after) == serial(still)
        await client.producer("demo").send(b"2")
        for connection in (before, after, still):
            connection.close()


@pytest.mark.limit(20)
async def test_old_versions_are_refused(cluster, authority) -> None:
    """TLS 1.2 at least."""
    context = ssl.create_default_context(cafile=authority.file)
    with warnings.catch_warnings(action="ignore"):  # Python warns of these versions, too
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises(OSError):  # noqa: PT011  a lost connection or an alert, as it happens
        await deferToThread(handshake, cluster.master.tls_port, context)


@pytest.mark.limit(20)
async def test_clients_may_have_to_show_a_certificate(tmp_path, authority) -> None:
    """Of the right authority; others do not get through the handshake."""
    clients = Authority(tmp_path, "clients")
    options = tls(authority, f"tls.client_ca_file={clients.file}")
    async with running(reactor, tmp_path, brokers=0, overrides=tuple(options)) as cluster:
        await cluster.start_broker(1, *options)
        await cluster.create_topic("demo")
        cert_file, key_file = clients.issue("me")
        mine = trusting(authority, cert_file=cert_file, key_file=key_file)
        async with Client(reactor, url(cluster), mine) as client:
            assert await exchange(client, cluster, "readers") == {True}
        async with Client(reactor, url(cluster), trusting(authority)) as client:
            with pytest.raises(UnreachableError):
                await client.consumer(["demo"], "readers")

        def talk() -> list[bytes]:
            with BlockingClient(url(cluster), mine) as client:
                return [m.value for m in client.consumer(["demo"], "others").batches(wait_s=5)]

        assert await deferToThread(talk) == [b"hello"]


@pytest.mark.parametrize(
    "change",
    [{"cert_file": "/nonexistent"}, {"key_file": ""}, {"client_ca_file": "/nonexistent"}],
)
def test_files_that_do_not_fit_are_a_line(authority, change: dict[str, str]) -> None:
    """Said at the start."""
    cert_file, key_file = authority.issue("server")
    with pytest.raises(ConfigError, match="tls: "):
        Certificates(TlsConfig(**({"cert_file": cert_file, "key_file": key_file} | change)))


async def test_a_port_in_use_is_a_line(tmp_path, authority) -> None:
    """With the name of the option."""
    cert_file, key_file = authority.issue("server")
    async with AsyncExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            options = TlsConfig(port=taken.getsockname()[1], cert_file=cert_file, key_file=key_file)
            with pytest.raises(PortInUseError) as caught:
                await app.serve(reactor, configuration(tmp_path, tls=options), stack, upgrade=True)
    assert "tls.port" in caught.value.hint


@pytest.mark.parametrize("field", ["ca_file", "cert_file"])
async def test_a_client_s_files_that_cannot_be_used_are_an_error(field, tmp_path) -> None:
    """Of both drivers."""
    (tmp_path / "empty").write_text("nothing")
    for path in ("/nonexistent", str(tmp_path / "empty")):
        options = ClientOptions(**{field: path})
        drivers: list[Callable[[], object]] = [
            lambda o=options: Client(reactor, "tubes://h", o),  # type: ignore[misc]
            lambda o=options: BlockingClient("tubes://h", o),  # type: ignore[misc]
        ]
        for driver in drivers:
            with pytest.raises(BadRequestError, match="certificates"):
                driver()
