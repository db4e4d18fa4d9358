"""The command as a whole."""

from __future__ import annotations

import subprocess
import sys
import time

import click

from tests.cli.conftest import TUBE, Dev, here, outside
from tube.cli.main import COMMANDS, LazyGroup, cli

HEAVY = ("twisted", "sqlalchemy", "rich", "google.protobuf", "urllib.request", "asyncio", "yaml")


def test_help_imports_nothing_heavy() -> None:
    """``tube --help`` stays quick because it loads click and the command's own table only."""
    program = (
        "import sys; from tube.cli.main import run; run(['--help']);"
        f" print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().splitlines()[-1] == "[]"


def test_help_is_quick() -> None:
    """At most 150 ms; the best of five, since the machine may be busy."""
    seconds = []
    for _ in range(5):
        begin_s = time.perf_counter()
        subprocess.run([TUBE, "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - begin_s)
    assert min(seconds) <= 0.150


def test_the_table_says_what_the_commands_say() -> None:
    """The lines of the help are those of the commands, which are not loaded for it."""
    context = click.Context(cli)
    for name, (_, line) in COMMANDS.items():
        command = LazyGroup.get_command(cli, context, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.name == name
        assert command.help is not None
        assert command.help.splitlines()[0] == line


def test_a_wrong_command_line_is_one_line_and_a_hint() -> None:
    """Exit code 2."""
    ended = here("topic", "explode")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines() == [
        "tube: No such command 'explode'.",
        "hint: try: tube topic --help",
    ]


def test_a_traceback_comes_only_with_debug() -> None:
    """People get a line, developers the stack."""
    arguments = ["--http", "127.0.0.1:1", "topic", "list"]
    assert "Traceback" not in here(*arguments).err
    assert "Traceback" in here("--debug", *arguments).err


def test_version() -> None:
    """``tube --version`` names the release."""
    assert outside("--version").out.startswith("tube 0.")


def test_a_reader_that_goes_away_ends_a_command_quietly(dev: Dev, filled: str) -> None:
    """``tube consume … | head -1`` says nothing about pipes."""
    command = f"{TUBE} {' '.join(dev.options)} consume {filled} -q -e | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=30)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == b""
