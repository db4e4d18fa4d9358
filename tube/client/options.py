"""Where the masters are, and how patient a client is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tube.errors import BadRequestError
from tube.values import Address

MASTER_PORT: Final = 8715
MASTER_TLS_PORT: Final = 8716


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Who a client is, and its limits; times in seconds.

    Raises:
        BadRequestError: a user without a secret, or the reverse.
    """

    user: str = ""
    """Who signs, at masters that want signatures."""
    secret: str = field(default="", repr=False)
    """The user's secret."""
    ca_file: str = ""
    """PEM file with the authorities of the servers' certificates, for ``tubes://``; else the system's."""
    cert_file: str = ""
    """PEM file with this client's certificate, where servers want one."""
    key_file: str = ""
    """PEM file with its key."""
    connect_s: float = 3.0
    """How long making a connection may take."""
    call_s: float = 10.0
    """How long one call may take."""
    heartbeat_s: float = 10.0
    """Longest pause between heartbeats; the server drops a client after 30."""
    idle_s: float = 600.0
    """Unused connections to brokers are closed after this."""
    close_s: float = 10.0
    """How long ``close`` may flush and say goodbye."""

    def __post_init__(self) -> None:
        if bool(self.user) != bool(self.secret):
            raise BadRequestError("a client has a user and a secret, or neither")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Limits of a producer."""

    buffer_bytes: int = 64 * 1024 * 1024
    """Most bytes that wait to be acknowledged."""
    when_full: str = "block"
    """``block`` waits for room in the buffer, ``raise`` raises BufferFullError."""
    delivery_s: float = 30.0
    """A message that is not acknowledged by then fails."""
    batch_bytes: int = 512 * 1024
    """Most bytes of one batch."""
    linger_s: float = 0.0
    """How long a batch waits for more messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Limits of a consumer."""

    start: str = "earliest"
    """Where a group without a committed offset starts: ``earliest`` or ``latest``."""
    auto_ack: bool = False
    """Acknowledge a message when the next one is asked for."""
    ack_interval_s: float = 0.1
    """Acknowledgements are sent to the broker this often."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Most bytes that are fetched ahead."""
    fetch_bytes: int = 1024 * 1024
    """About how many bytes one pull asks for."""
    fetch_wait_s: float = 10.0
    """How long a pull waits at the broker for a message."""
    max_processing_s: float = 300.0
    """A consumer that holds messages and asks for no more for so long leaves its group."""


def parse_url(url: str) -> list[Address]:
    """The masters of ``tube://host:8715,host2:8715``, or on TLS ``tubes://host:8716``.

    Ports may be left out.

    Raises:
        BadRequestError: another scheme, no host, or a port that is none.
    """
    parts = urlsplit(url if "://" in url else f"tube://{url}")
    if parts.scheme not in ("tube", "tubes") or not parts.netloc:
        raise BadRequestError(f"expected tube://host:port or tubes://host:port, got {url!r}")
    usual = MASTER_TLS_PORT if is_secure(url) else MASTER_PORT
    masters = []
    for text in parts.netloc.split(","):
        bare = text.endswith("]") or ":" not in text  # [::1] has colons but no port
        host, _, port = (text, "", str(usual)) if bare else text.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise BadRequestError(f"expected host:port, got {text!r} in {url!r}")
        masters.append(Address(host.strip("[]"), int(port)))
    return masters


def is_secure(url: str) -> bool:
    """Whether a URL asks for TLS."""
    return url.lower().startswith("tubes://")
