"""TLS on a port of its own; a certificate that changes on the disk is used for the next connection.

Connections that are open keep the certificate that they began with.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from OpenSSL import SSL
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from tube.errors import ConfigError
from tube.net.clock import Reactor
from tube.net.daemon import BACKLOG, PortInUseError, port_number, stop_listening

log = Logger(namespace="tube.net.tls")


class TlsOptions(Protocol):
    """The options of a TLS port; without a certificate there is none."""

    @property
    def port(self) -> int:
        """TCP port, 0 for any free one."""

    @property
    def cert_file(self) -> str:
        """PEM, the server's certificate first."""

    @property
    def key_file(self) -> str:
        """PEM."""

    @property
    def client_ca_file(self) -> str:
        """PEM; clients need a certificate of these."""


@implementer(IOpenSSLServerConnectionCreator)
class Certificates:
    """The server's side of handshakes, from files that may change.

    Raises:
        ConfigError: a file is missing or malformed, or key and certificate do not belong together.
    """

    def __init__(self, options: TlsOptions) -> None:
        self._options = options
        self._files = [
            path for path in (options.cert_file, options.key_file, options.client_ca_file) if path
        ]
        self._seen = self._look()
        try:
            self._context = self._load()
        except (SSL.Error, OSError) as error:
            raise ConfigError([f"tls: {', '.join(self._files)}: {_reason(error)}"]) from error

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Twisted asks for each connection."""
        del protocol
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = self._load()
                log.info("the certificate has changed", path=self._options.cert_file)
            except (SSL.Error, OSError) as error:
                log.warn("the old certificate stays: {error}", error=_reason(error))
        return SSL.Connection(self._context, None)

    def _look(self) -> list[tuple[int, int, int]]:
        found = []
        for path in self._files:
            try:
                status = os.stat(path)
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                found.append((0, 0, 0))
        return found

    def _load(self) -> SSL.Context:
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.use_certificate_chain_file(self._options.cert_file)
        context.use_privatekey_file(self._options.key_file)
        context.check_privatekey()
        if self._options.client_ca_file:
            context.load_verify_locations(self._options.client_ca_file)
            context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
        return context


@asynccontextmanager
async def listening_tls(
    reactor: Reactor, host: str, options: TlsOptions, factory: ServerFactory[Any]
) -> AsyncIterator[int]:
    """A TLS port that closes with the block; 0 when there is no certificate.

    Raises:
        ConfigError: see ``Certificates``.  PortInUseError: somebody else listens there.
    """
    if not options.cert_file:
        yield 0
        return
    certificates = Certificates(options)
    try:
        opened = reactor.listenSSL(
            options.port,
            factory,
            certificates,  # type: ignore[arg-type]  # newer than the interface says
            backlog=BACKLOG,
            interface=host,
        )
    except CannotListenError as error:
        raise PortInUseError(
            f"cannot listen on {host}:{options.port}: {error.socketError}",
            hint="stop the other process, or choose another tls.port",
        ) from error
    try:
        yield port_number(opened)
    finally:
        await stop_listening(opened)


def _reason(error: Exception) -> str:
    """OpenSSL's errors are lists of (library, function, reason)."""
    if isinstance(error, SSL.Error) and error.args and error.args[0]:
        return "; ".join(str(one[-1]) for one in error.args[0])
    return str(error) or type(error).__name__
