"""Calls to the master's HTTP API, and what goes wrong with them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import Dev
from tube.cli.api import Api, path_of
from tube.errors import ConflictError, NotFoundError, TimedOutError, TubeError, UnreachableError


@contextmanager
def answering(content: bytes | None) -> Iterator[str]:
    """A server that gives every connection this, or nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                if content is None:
                    done.wait(10)
                else:
                    connection.sendall(content)

        done = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def test_errors_of_the_server_come_as_their_classes(dev: Dev, topic: str) -> None:
    """With message and hint; paths are quoted."""
    api = Api(f"127.0.0.1:{dev.ports['http']}")
    with pytest.raises(NotFoundError, match="nowhere"):
        api.get(path_of("topics", "nowhere/else"))
    with pytest.raises(ConflictError):
        api.change("POST", path_of("topics"), {"name": topic, "partitions": 1})
    api.get(path_of("topics"))
    assert "GMT" in api.date


def test_nobody_there() -> None:
    """Says where nobody is, and what to do."""
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1") as caught:
        Api("127.0.0.1:1").get("/")
    assert "tube dev" in caught.value.hint


def test_a_proxy_of_the_environment_is_not_asked(dev: Dev, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not know the cluster."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Api(f"127.0.0.1:{dev.ports['http']}").get(path_of("status"))["role"] == "leader"


def test_no_answer_in_time() -> None:
    """A master that hangs does not hang the command."""
    with answering(None) as address, pytest.raises(TimedOutError):
        Api(address, timeout_s=0.1).get("/")


@pytest.mark.parametrize("content", [b"HTTP/1.0 200 OK\r\n\r\n<html>", b"SSH-2.0\r\n", b""])
def test_somebody_else_answers(content: bytes) -> None:
    """A wrong port is one clear error."""
    with answering(content) as address, pytest.raises(TubeError):
        Api(address, timeout_s=5).get("/")


def test_an_error_that_is_not_ours() -> None:
    """The status says enough."""
    with (
        answering(b"HTTP/1.0 502 Bad Gateway\r\n\r\nno") as address,
        pytest.raises(TubeError, match="502"),
    ):
        Api(address, timeout_s=5).get("/")
