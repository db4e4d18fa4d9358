"""Which cluster a command talks to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.cli.conftest import here
from tube.cli.cluster import Cluster, choose, load_contexts
from tube.cli.main import cli
from tube.errors import ConfigError, NotFoundError, TubeError


def chosen(*arguments: str) -> Cluster:
    """What a command line with these global options means."""
    with cli.make_context("tube", [*arguments, "topic"]) as ctx:
        assert isinstance(ctx, click.Context)
        return choose(ctx)


def test_a_master_on_this_machine_unless_said_otherwise() -> None:
    """TubeMQ's port for clients, 8080 for HTTP."""
    assert chosen() == Cluster(master="127.0.0.1:8715", http="127.0.0.1:8080")
    assert Cluster().url == "tube://127.0.0.1:8715"


def test_options_beat_the_environment_and_that_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order."""
    here("context", "add", "test", "--master", "c:1", "--http", "c:2")
    assert chosen() == Cluster(master="c:1", http="c:2")
    monkeypatch.setenv("TUBE_HTTP", "e:2")
    assert chosen() == Cluster(master="c:1", http="e:2")
    assert chosen("--http", "o:2").http == "o:2"


def test_an_unknown_context_is_not_found() -> None:
    """And the others are one command away."""
    with pytest.raises(NotFoundError, match="'nowhere'"):
        chosen("--context", "nowhere")


def test_a_broken_file_of_contexts_is_named(own_contexts: Callable[[], Path]) -> None:
    """Nothing is guessed."""
    path = own_contexts()
    path.parent.mkdir(parents=True)
    path.write_text("[contexts.a]\ncolour = 'red'\n")
    with pytest.raises(ConfigError, match=r"contexts\.toml"):
        load_contexts()


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Before anything is asked."""
    with pytest.raises(TubeError, match="token"):
        Cluster(token_file=str(tmp_path / "token")).api()
