"""Builds a master and starts it in order; stopping is the same list backwards."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tube.config import MasterConfig
from tube.errors import ConfigError, StoreError
from tube.master.brokers import Brokers
from tube.master.cluster_key import ClusterKey
from tube.master.core import Core
from tube.master.database import Database
from tube.master.db import engine as engines
from tube.master.db import schema
from tube.master.db.lease import Candidate
from tube.master.gateway import MasterGateway
from tube.master.groups import Groups
from tube.master.jobs import Jobs, scheduled
from tube.master.leader import RENEW, Leader
from tube.master.metrics import MasterMetrics
from tube.master.orders import Orders
from tube.master.resets import Resets
from tube.master.topics import Topics
from tube.master.upkeep import Upkeep
from tube.master.users import Users
from tube.master.web.api import Api
from tube.net.clock import Reactor, wall_ms
from tube.net.daemon import listening, port_number
from tube.net.framed import FramedFactory
from tube.net.health import TICK_S, ReactorLag, add_health
from tube.net.ticker import ticking
from tube.net.tls import listening_tls
from tube.net.web import Routes, json_site
from tube.net.workers import Workers, workers

log = Logger(namespace="tube.master")

UPKEEP_S = 1.0
CLOSING_S = 1.0
"""How long connections have to send what was written when the master stops."""


@dataclass(slots=True)
class RunningMaster:
    """A master that serves, for tests and ``tube dev``.

    ``http_port`` is -1, ``tls_port`` 0 when there is none.
    """

    core: Core
    orders: Orders
    connections: FramedFactory
    port: int
    http_port: int
    tls_port: int = 0


async def serve(
    reactor: Reactor, config: MasterConfig, stack: AsyncExitStack, *, upgrade: bool = False
) -> RunningMaster:
    """Start a master on ``stack``; leaving the stack gives the lease back and stops it.

    Args:
        upgrade: bring the database to this program's schema first; ``tube dev`` and tests do.

    Raises:
        ConfigError: the database's URL or a secret file is wrong.  SchemaError: run ``tube db upgrade``, or a
            newer program.  StoreError: the database cannot be reached.  PortInUseError: a port is taken.
    """
    sql = await stack.enter_async_context(workers(reactor, "sql", engines.POOL_SIZE))
    engine = await stack.enter_async_context(_engine(config, sql))
    await sql.call(_prepare, engine, upgrade=upgrade)
    key = _cluster_key(config)
    core = Core(reactor, config, Database(engine, sql), time.monotonic, wall_ms, key)
    orders = Orders(core)
    brokers = Brokers(core, orders)
    gateway = MasterGateway(core, brokers)
    factory = FramedFactory(
        reactor,
        gateway.received,
        gateway.lost,
        limit=gateway.limit,
        connections_max=config.connections_max,
    )
    routes = Routes()
    token = _secret(config.http.admin_token_file, "http.admin_token_file")
    http_port = await stack.enter_async_context(_http(reactor, config, routes, token))
    listener = await stack.enter_async_context(
        listening(reactor, config.host, config.port, factory)
    )
    tls_port = await stack.enter_async_context(
        listening_tls(reactor, config.host, config.tls, factory)
    )
    port = port_number(listener)
    address = f"{config.host}:{port}"
    core.leader = Leader(
        core.database,
        Candidate(
            holder=f"{config.name or address}/{secrets.token_hex(8)}",
            address=address,
            http_address=f"{config.host}:{http_port}" if http_port >= 0 else "",
            ttl_ms=int(config.lease_s * 1000),
        ),
        core.now_s,
        core.load,
        core.clear,
    )
    groups = Groups(core, orders)
    api = Api(
        core,
        brokers=brokers,
        topics=Topics(core, orders),
        groups=groups,
        resets=Resets(core, groups, orders),
        users=Users(core),
        name=config.name or address,
        address=address,
    )
    api.add_to(routes)
    await _start(reactor, config, stack, core=core, gateway=gateway, factory=factory, routes=routes)
    upkeep = Upkeep(core, brokers)
    for name, interval_s, body in (
        ("upkeep", UPKEEP_S, upkeep.every_second),
        ("balance", config.balance_period_s, upkeep.balance),
    ):
        await stack.enter_async_context(ticking(reactor, name, interval_s, body))
    return RunningMaster(core, orders, factory, port, http_port, tls_port)


async def _start(
    reactor: Reactor,
    config: MasterConfig,
    stack: AsyncExitStack,
    *,
    core: Core,
    gateway: MasterGateway,
    factory: FramedFactory,
    routes: Routes,
) -> None:
    """Health, jobs, and the lease: from the first tick on we may lead."""
    lag = ReactorLag(reactor)
    await stack.enter_async_context(ticking(reactor, "reactor lag", TICK_S, lag.tick))
    metrics = MasterMetrics(core, gateway, lambda: len(factory.connections), lambda: lag.seconds)
    add_health(routes, metrics, lambda: _unready(core))
    stack.push_async_callback(_stop, reactor, core, factory)
    jobs = Jobs(
        core.database.engine,
        lambda: core.leader.epoch if core.leader.leads else 0,
        wall_ms,
        history_days=config.history_days,
        history_rows_max=config.history_rows_max,
    )
    await stack.enter_async_context(scheduled(reactor, jobs))
    await core.leader.tick()
    await stack.enter_async_context(
        ticking(reactor, "lease", config.lease_s * RENEW, core.leader.tick)
    )


def _prepare(engine: sa.Engine, *, upgrade: bool) -> None:
    """Check the schema; runs in a worker."""
    try:
        if upgrade:
            _upgrade(engine)
        refused = schema.refusal(engine)
    except sa.exc.SQLAlchemyError as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise StoreError(
            f"the database cannot be used: {str(cause).strip()}",
            hint="look at database and password_file",
        ) from error
    if refused is not None:
        raise refused


def _upgrade(engine: sa.Engine) -> None:
    """Bring the database to the newest schema; an empty one needs no Alembic."""
    revision = schema.current(engine)
    if revision is None:
        schema.create(engine)
    elif revision != schema.REVISION:
        from tube.master.db import migrate

        migrate.upgrade(engine)


@asynccontextmanager
async def _engine(config: MasterConfig, sql: Workers) -> AsyncIterator[sa.Engine]:
    """The engine, closed in a worker."""
    engine = engines.create(config.database, _secret(config.password_file, "password_file"))
    try:
        yield engine
    finally:
        await sql.call(engine.dispose)


def _secret(path: str, option: str) -> str:
    """The text in a file; "" for no file."""
    if not path:
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{option}: {error}"]) from error
    if not text:
        raise ConfigError([f"{option}: {path} is empty"])
    return text


def _cluster_key(config: MasterConfig) -> ClusterKey | None:
    """The key of the users' secrets; None when there is none, and nobody must sign."""
    tokens = config.tokens
    text = _secret(tokens.cluster_key_file, "tokens.cluster_key_file")
    if not text and (tokens.sign_producers or tokens.sign_consumers):
        raise ConfigError(
            [
                "tokens.cluster_key_file: missing, and clients must sign; make one with: tube user key"
            ]
        )
    return ClusterKey(text) if text else None


@asynccontextmanager
async def _http(
    reactor: Reactor, config: MasterConfig, routes: Routes, token: str
) -> AsyncIterator[int]:
    """The HTTP port; -1 when none is wanted."""
    if config.http.port < 0:
        yield -1
        return
    site = json_site(reactor, routes, token)
    async with listening(reactor, config.host, config.http.port, site) as port:
        yield port_number(port)


async def _stop(reactor: Reactor, core: Core, factory: FramedFactory) -> None:
    """Store the history, give the lease back, end all connections."""
    await core.chronicle.flush()
    await core.leader.release()
    core.chronicle.stop()
    core.balancer.stop()
    for connection in list(factory.connections):
        connection.close()
    until_s = reactor.seconds() + CLOSING_S
    while factory.connections and reactor.seconds() < until_s:
        await deferLater(reactor, 0.01, lambda: None)
    for connection in list(factory.connections):
        connection.abort()


def _unready(core: Core) -> list[str]:
    reasons = []
    if not core.leader.leads:
        address = core.leader.address
        reasons.append(f"standby: the leader is {address}" if address else "no master leads")
    if core.leader.database_fails:
        reasons.append(core.leader.database_fails)
    return reasons
