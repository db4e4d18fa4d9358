"""Databases and masters for the tests of the master."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tests.master.peers import Http, Peer
from tube.config import HttpConfig, MasterConfig
from tube.master import app
from tube.master.db import engine as engines
from tube.master.db import migrate
from tube.net.caller import connect
from tube.values import Address

_names = itertools.count()


def _as_postgres(*command: str) -> None:
    """PostgreSQL refuses to run as root."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run([*prefix, *command], check=True, capture_output=True)


def _binary(name: str) -> str | None:
    found = shutil.which(name)
    if found is None and (config := shutil.which("pg_config")):
        shown = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        found = shutil.which(name, path=shown.stdout.strip())
    return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The directory of the socket of a throw-away PostgreSQL."""
    initdb, control = _binary("initdb"), _binary("pg_ctl")
    if initdb is None or control is None:
        pytest.skip("initdb and pg_ctl are not installed")
    directory = Path(tempfile.mkdtemp(prefix="tube-pg-"))
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)
    data = str(directory / "data")
    options = f"-k {directory} -c listen_addresses='' -c fsync=off"
    _as_postgres(initdb, "-D", data, "-U", "tube", "-A", "trust")
    log = str(directory / "log")
    _as_postgres(control, "-D", data, "-o", options, "-l", log, "-w", "start")
    try:
        yield str(directory)
    finally:
        _as_postgres(control, "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(directory)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request, tmp_path) -> str:
    """URL of an empty database, of each kind that we run on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tube.db"
    directory = request.getfixturevalue("postgres")
    name = f"tube{next(_names)}"
    root = sa.create_engine(
        f"postgresql+psycopg://tube@/postgres?host={directory}", isolation_level="AUTOCOMMIT"
    )
    with root.connect() as conn:
        conn.exec_driver_sql(f"CREATE DATABASE {name}")
    root.dispose()
    return f"postgresql+psycopg://tube@/{name}?host={directory}"


@pytest.fixture
def engine(empty_url) -> Iterator[sa.Engine]:
    """A database with the schema of this program."""
    made = engines.create(empty_url)
    migrate.upgrade(made)
    yield made
    made.dispose()


def configuration(tmp_path: Path, **options: object) -> MasterConfig:
    """Options of a master on free ports, quick to balance."""
    defaults: dict[str, object] = {
        "port": 0,
        "database": f"sqlite:///{tmp_path}/tube.db",
        "http": HttpConfig(port=0),
        "balance_delay_s": 0.02,
    }
    return MasterConfig(**(defaults | options))  # type: ignore[arg-type]


@async_yield_fixture
async def master(tmp_path):
    """A master that leads on a fresh database."""
    async with AsyncExitStack() as stack:
        yield await app.serve(reactor, configuration(tmp_path), stack, upgrade=True)


@async_yield_fixture
async def peer(master):
    """A connection to the master."""
    caller = await connect(reactor, Address("127.0.0.1", master.port))
    yield Peer(caller)
    gone = caller.when_gone()
    caller.close()
    await gone


@pytest.fixture
def http(master) -> Http:
    """The master's HTTP port."""
    return Http(master.http_port)
