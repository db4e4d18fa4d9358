"""Turns a TOML table into frozen dataclasses, or a list of all its faults.

Every option is a field of a dataclass below, with its meaning in the field's ``doc``.  Unknown keys are
errors; all problems are reported together.  ``docs/reference/config.md`` is generated from here.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tube.errors import ConfigError
from tube.values import Address

T = TypeVar("T")


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A field with its documentation and, for numbers, the least and the greatest value allowed."""
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def section(kind: type[T], *, doc: str) -> Any:
    """A nested table."""
    return dataclasses.field(default_factory=kind, metadata={"doc": doc, "minimum": None})


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """The HTTP port: API, metrics, health."""

    port: int = option(8080, doc="TCP port; 0 takes any free port, -1 opens none", minimum=-1)
    admin_token_file: str = option(
        "", doc="file with the token that changes need; empty: only local callers may change things"
    )


@dataclass(frozen=True, kw_only=True)
class BrokerHttpConfig(HttpConfig):
    """The HTTP port of a broker: metrics, health; 8080 is the master's."""

    port: int = option(8081, doc="TCP port; 0 takes any free port, -1 opens none", minimum=-1)


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """The TLS port for clients, beside the plain one."""

    port: int = option(8716, doc="TCP port; 0 takes any free port", minimum=0)
    cert_file: str = option("", doc="PEM file, the server's certificate first; empty: no TLS")
    key_file: str = option("", doc="PEM file with the certificate's key")
    client_ca_file: str = option(
        "", doc="PEM file; clients must have a certificate of one of these authorities"
    )


@dataclass(frozen=True, kw_only=True)
class BrokerTlsConfig(TlsConfig):
    """The TLS port of a broker; 8716 is the master's."""

    port: int = option(8124, doc="TCP port; 0 takes any free port", minimum=0)


@dataclass(frozen=True, kw_only=True)
class TokenConfig:
    """Tokens and what brokers demand of clients."""

    visit_token_check: bool = option(
        False,
        doc="brokers refuse clients that did not come through the master (C++ and Go producers too)",
    )
    require_auth_token: bool = option(
        False,
        doc="brokers refuse clients without a valid signed token (original clients have none)",
    )
    visit_token_valid_s: float = option(
        300.0, doc="a visit token is replaced after 4/5 of this", minimum=1
    )
    auth_token_valid_s: float = option(3600.0, doc="how long a signed token is valid", minimum=1)
    cluster_key_file: str = option(
        "",
        doc="file with the key that the users' secrets are stored with; `tube user key` makes one",
    )
    sign_producers: bool = option(
        False, doc="producers must sign with a user's secret (C++ and Go cannot)"
    )
    sign_consumers: bool = option(
        False, doc="consumers must sign with a user's secret (C++ and Go cannot)"
    )
    unsigned_networks: list[str] = option(
        [], doc="networks such as 10.1.0.0/16 whose clients need not sign"
    )
    signature_window_s: float = option(
        20.0, doc="how far a signature's time may be from the master's", minimum=5, maximum=120
    )


@dataclass(frozen=True, kw_only=True)
class MasterConfig:
    """Options of ``tube master``."""

    host: str = option("127.0.0.1", doc="address to listen on, and to tell brokers and clients")
    port: int = option(
        8715, doc="TCP port for clients and brokers; 0 takes any free port", minimum=0
    )
    database: str = option(
        "sqlite:///tube.db", doc="SQLAlchemy URL; a password may stand in password_file"
    )
    password_file: str = option("", doc="file with the password of the database user")
    name: str = option("", doc="name of this master in the lease; empty: host:port")
    lease_s: float = option(5.0, doc="how long a leader leads without renewing", minimum=0.1)
    balance_delay_s: float = option(
        0.25, doc="changes of a group are collected this long", minimum=0
    )
    balance_period_s: float = option(
        30.0, doc="every group is looked at this often anyway", minimum=0.1
    )
    take_over_wait_s: float = option(
        0.0,
        doc="after a fail-over partitions are not handed out for this long; 0: half of consumer_timeout_s",
        minimum=0,
    )
    consumer_timeout_s: float = option(
        30.0, doc="a silent consumer is dropped after this", minimum=1
    )
    producer_timeout_s: float = option(
        45.0, doc="a silent producer is dropped after this", minimum=1
    )
    broker_timeout_s: float = option(
        25.0, doc="a silent broker is taken for dead after this", minimum=1
    )
    auto_add_brokers: bool = option(
        True, doc="a broker that registers is added to the metadata and goes online"
    )
    group_broker_rate_max: int = option(1000, doc="most brokers per consumer of a group", minimum=1)
    history_days: float = option(14.0, doc="events older than this are deleted", minimum=0.01)
    history_rows_max: int = option(1_000_000, doc="most rows of the history", minimum=1000)
    connections_max: int = option(20_000, doc="most open connections", minimum=1)
    http: HttpConfig = section(HttpConfig, doc="the HTTP port")
    tokens: TokenConfig = section(TokenConfig, doc="tokens")
    tls: TlsConfig = section(TlsConfig, doc="TLS for clients")


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Where and how messages are kept."""

    data_dir: str = option("data", doc="directory of the log; belongs to one broker")
    segment_bytes: int = option(
        128 * 1024 * 1024, doc="size at which a new segment starts", minimum=4096
    )
    journal_bytes: int = option(
        64 * 1024 * 1024, doc="journal size at which it is cut behind synced segments", minimum=4096
    )
    checkpoint_s: float = option(
        10.0, doc="segments are synced and the journal is cut this often", minimum=0.1
    )
    retention_s: float = option(60.0, doc="old segments are looked for this often", minimum=0.1)
    reserve_bytes: int = option(
        4 * 1024 * 1024, doc="kept free so that a broker starts on a full disk", minimum=0
    )
    tail_cache_bytes: int = option(64 * 1024 * 1024, doc="newest blocks kept in memory", minimum=0)


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """Options of ``tube broker``."""

    broker_id: int = option(doc="number of this broker, unique in the cluster", minimum=1)
    host: str = option("127.0.0.1", doc="address to listen on, and to tell the master and clients")
    port: int = option(8123, doc="TCP port; 0 takes any free port", minimum=0)
    masters: list[str] = option(["127.0.0.1:8715"], doc="host:port of every master")
    consumer_timeout_s: float = option(
        30.0, doc="a silent consumer loses its partitions after this", minimum=1
    )
    heartbeat_s: float = option(
        8.0, doc="heartbeats to the master come at least this often", minimum=0.1
    )
    pull_bytes: int = option(512 * 1024, doc="largest batch for original clients", minimum=1024)
    offset_days: float = option(
        20.0, doc="offsets of groups unused for this long are forgotten", minimum=1
    )
    drain_s: float = option(10.0, doc="how long a stop waits for requests in flight", minimum=0)
    connections_max: int = option(20_000, doc="most open connections", minimum=1)
    log: LogConfig = section(LogConfig, doc="the log")
    http: BrokerHttpConfig = section(BrokerHttpConfig, doc="the HTTP port")
    tls: BrokerTlsConfig = section(BrokerTlsConfig, doc="TLS for clients")


def load(kind: type[T], table: Mapping[str, object], overrides: Iterable[str] = ()) -> T:
    """Build ``kind`` from a TOML table and ``key.path=value`` overrides.

    Raises:
        ConfigError: with every fault, one line each: ``log.data_dir: missing``.
    """
    faults: list[str] = []
    merged = _copy(table)
    for text in overrides:
        _override(merged, text, faults)
    built = _build(kind, merged, "", faults)
    if faults or built is None:
        raise ConfigError(sorted(faults))
    return built


def load_file(kind: type[T], path: str, overrides: Iterable[str] = ()) -> T:
    """``load`` from a TOML file; an empty path is an empty file.

    Raises:
        ConfigError: the file is missing or not TOML, or its content has faults.
    """
    try:
        if not path:
            return load(kind, {}, overrides)
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError([f"{path}: {error}"]) from error
    return load(kind, table, overrides)


def parse_address(text: str) -> Address:
    """``host:port`` as an address.

    Raises:
        ConfigError: no port, or one outside 1..65535.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError([f"expected host:port, got {text!r}"])
    return Address(host.strip("[]"), int(port))


def _copy(table: Mapping[str, object]) -> dict[str, object]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in table.items()}


def _override(table: dict[str, object], text: str, faults: list[str]) -> None:
    path, separator, value = text.partition("=")
    *parents, key = path.strip().split(".")
    if not separator or not key:
        faults.append(f"--set {text}: expected key=value")
        return
    for parent in parents:
        inner = table.setdefault(parent, {})
        if not isinstance(inner, dict):
            faults.append(f"--set {text}: {parent} is not a table")
            return
        table = inner
    try:
        table[key] = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        table[key] = value  # a bare word is a string


def _build(kind: type[T], table: Mapping[str, object], path: str, faults: list[str]) -> T | None:
    hints = typing.get_type_hints(kind)
    values: dict[str, object] = {}
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, kind))}
    faults += [f"{path}{key}: unknown option" for key in table if key not in fields]
    for name, field in fields.items():
        if name not in table:
            if (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                faults.append(f"{path}{name}: missing")
            continue
        value, fault = _value(hints[name], table[name], f"{path}{name}", faults)
        fault = fault or _out_of_range(value, field.metadata)
        if fault:
            faults.append(f"{path}{name}: {fault}")
        else:
            values[name] = value
    return None if faults else kind(**values)


def _out_of_range(value: object, limits: Mapping[str, Any]) -> str:
    minimum, maximum = limits.get("minimum"), limits.get("maximum")
    if minimum is not None and isinstance(value, int | float) and value < minimum:
        return f"{value} is less than {minimum}"
    if maximum is not None and isinstance(value, int | float) and value > maximum:
        return f"{value} is more than {maximum}"
    return ""


def _value(hint: Any, given: object, path: str, faults: list[str]) -> tuple[object, str]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(given, Mapping):
            return None, f"expected a table, got {given!r}"
        return _build(hint, given, f"{path}.", faults), ""
    if isinstance(hint, types.GenericAlias):
        strings = isinstance(given, list) and all(isinstance(item, str) for item in given)
        return given, "" if strings else f"expected a list of strings, got {given!r}"
    if hint is float and type(given) is int:
        return float(given), ""
    return given, "" if type(given) is hint else f"expected {hint.__name__}, got {given!r}"
