"""``tube doctor``: one line per check, with a remedy where one is needed."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import click

from tube.cli.api import Api, path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.output import output_option, show
from tube.config import parse_address
from tube.errors import TubeError
from tube.values import Address

LIMIT_S: Final = 3.0
CLOCK_S_MAX: Final = 2.0
"""The Date header counts whole seconds."""

FREE_BYTES_MIN: Final = 1024**3
FILES_MIN: Final = 4096
"""A connection and a segment are one file each."""

Check = dict[str, Any]


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    default=Path(),
    help="Folder whose disk is checked (default: this one).",
)
@output_option
@with_cluster
def doctor(cluster: Cluster, /, *, data: Path, form: str) -> int:
    """Look for what is wrong with a cluster.

    Exit code 1 when something is, here or there.
    """
    checks = [*_machine(data), *_cluster(cluster)]
    show(checks, ["check", "ok", "found", "remedy"], form, name="check")
    return 0 if all(check["ok"] for check in checks) else 1


def _machine(data: Path) -> Iterator[Check]:
    usage = shutil.disk_usage(data)
    yield _check(
        "disk",
        usage.free >= FREE_BYTES_MIN,
        f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB are free",
        "free space: brokers refuse messages on a full disk",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _check(
        "open files",
        soft < 0 or soft >= FILES_MIN,
        f"limit {soft} (at most {hard})",
        f"raise it in the shell or unit that starts brokers: ulimit -n {FILES_MIN}",
    )


def _cluster(cluster: Cluster) -> Iterator[Check]:
    yield _reachable(
        "master", cluster.master, "start one with: tube dev — or name yours with --master"
    )
    try:
        api = cluster.api(LIMIT_S)
        status = api.get(path_of("status"))
    except TubeError as error:
        yield _check("http", False, str(error), error.hint or "name the master's with --http")
        return
    yield _check("http", True, f"{cluster.http}: {status['name']}, {status['role']}", "")
    yield _check(
        "leader",
        status["role"] == "leader",
        f"epoch {status['epoch']}, up for {status['uptime_s']:.0f} s",
        "ask the leading master; see its /readyz",
    )
    yield _clock("clock of the master", cluster.http)
    brokers = api.get(path_of("brokers"))["brokers"]
    if not brokers:
        yield _check("brokers", False, "none is known", "start one with: tube broker --config FILE")
    for broker in brokers:
        yield from _broker(broker)


def _broker(broker: dict[str, Any]) -> Iterator[Check]:
    title, address = f"broker {broker['broker_id']}", f"{broker['host']}:{broker['port']}"
    yield _check(
        title,
        broker["alive"] and broker["state"] == "online",
        f"{address}, {broker['state']}" + ("" if broker["alive"] else ", silent"),
        f"tube broker-admin state {broker['broker_id']} online"
        if broker["alive"]
        else "start it again",
    )
    yield _reachable(f"{title}: port", address, "open the firewall, or correct the broker's host")
    if broker["http_port"] > 0:
        http = f"{broker['host']}:{broker['http_port']}"
        yield _ready(f"{title}: ready", http)
        yield _disk(f"{title}: disk", http)
        yield _clock(f"{title}: clock", http)


def _reachable(title: str, text: str, remedy: str) -> Check:
    try:
        address: Address = parse_address(text)
        begin_s = time.monotonic()
        socket.create_connection((address.host, address.port), LIMIT_S).close()
    except (TubeError, OSError) as error:
        return _check(title, False, f"{text}: {getattr(error, 'strerror', None) or error}", remedy)
    return _check(
        title, True, f"{text} answers in {(time.monotonic() - begin_s) * 1000:.1f} ms", remedy
    )


def _ready(title: str, http: str) -> Check:
    remedy = "its log says more"
    try:
        Api(http, timeout_s=LIMIT_S).call("GET", "/readyz")
    except TubeError as error:
        cause = error.__cause__
        text = f"status {cause.code}" if isinstance(cause, HTTPError) else str(error)
        return _check(title, False, f"{http}: {text}", remedy)
    return _check(title, True, http, remedy)


def _disk(title: str, http: str) -> Check:
    """The free space that the broker sees, which may be on another machine."""
    remedy = "free space: brokers refuse messages on a full disk"
    try:
        metrics = Api(http, timeout_s=LIMIT_S).call("GET", "/metrics").decode()
        (text,) = re.findall(r"^tube_broker_disk_free_bytes (\S+)$", metrics, re.MULTILINE)
        free = float(text)
    except (TubeError, ValueError) as error:
        return _check(title, False, f"{http}: {error}", remedy)
    return _check(title, free >= FREE_BYTES_MIN, f"{free / 1e9:.1f} GB are free", remedy)


def _clock(title: str, http: str) -> Check:
    """How far a server's clock is from ours; messages carry the broker's time, retention follows it."""
    remedy = "synchronise the clocks (ntp, chrony)"
    try:
        api = Api(http, timeout_s=LIMIT_S)
        api.call("GET", "/healthz")
        there = parsedate_to_datetime(api.date)
    except (TubeError, ValueError) as error:
        return _check(title, False, str(error), remedy)
    off_s = abs(there.timestamp() - time.time_ns() / 1e9)
    return _check(title, off_s <= CLOCK_S_MAX, f"{off_s:.0f} s apart", remedy)


def _check(title: str, ok: bool, found: str, remedy: str) -> Check:
    return {"check": title, "ok": bool(ok), "found": found, "remedy": None if ok else remedy}
