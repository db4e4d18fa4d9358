"""Ports, limits and the order of stopping."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys

import pytest
from twisted.internet import reactor
from twisted.internet.protocol import ServerFactory

from tube.net.daemon import (
    OPEN_FILES_MAX,
    PortInUseError,
    listening,
    port_number,
    print_ready,
    raise_open_files_limit,
)

PROGRAM = """
import sys
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from tube.net.daemon import run

async def serve(reactor, stack):
    await deferLater(reactor, 0, lambda: None)
    for name in ("first", "second"):
        stack.callback(lambda name=name: print(name, "stops", flush=True))
    if "fails" in sys.argv:
        raise SystemExit(3)
    return {"x": 1}

react(lambda reactor: Deferred.fromCoroutine(run(reactor, serve)))
"""


def program(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_stops_in_reverse_order_and_exits_0(number: int) -> None:
    """One ready line; on SIGTERM or SIGINT the parts stop backwards."""
    process = program()
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"ready": True, "ports": {"x": 1}}
    process.send_signal(number)
    rest = process.stdout.read().split()
    process.stdout.close()

    assert process.wait(10) == 0
    assert rest == ["second", "stops", "first", "stops"]


def test_a_part_that_cannot_start_unwinds_those_before_it() -> None:
    """What was started is stopped, and the exit code is not 0."""
    process = program("fails")
    output, _ = process.communicate(timeout=10)

    assert output.split() == ["second", "stops", "first", "stops"]
    assert process.returncode != 0


async def test_a_taken_port_is_an_error_with_a_hint() -> None:
    """It names host and port; the first listener is unharmed."""
    async with listening(reactor, "127.0.0.1", 0, ServerFactory()) as port:
        number = port_number(port)
        with pytest.raises(PortInUseError, match=f"127.0.0.1:{number}") as refused:
            async with listening(reactor, "127.0.0.1", number, ServerFactory()):
                pass
    assert refused.value.hint

    async with listening(reactor, "127.0.0.1", number, ServerFactory()) as again:
        assert port_number(again) == number


def test_the_limit_of_open_files_is_raised() -> None:
    """A soft limit of 64 becomes the hard one, and a raised one stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = max(256, soft // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        raised = raise_open_files_limit()
        expected = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == expected
        assert raise_open_files_limit() == raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_ready_line_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts and tests wait for it."""
    print_ready({"broker": 1})

    assert json.loads(capsys.readouterr().out) == {"ready": True, "ports": {"broker": 1}}
