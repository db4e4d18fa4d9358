"""The command ``tube``: global options, lazily loaded commands, one line per error.

A command's module is imported when the command runs; ``tube --help`` imports click and nothing else.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from tube import __version__
from tube.cli.failures import INTERRUPTED, exit_code, report

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "dev": ("tube.cli.dev:dev", "Run a master and a broker in one process."),
    "demo": ("tube.cli.demo:demo", "Show a group that rebalances, for a few seconds."),
    "master": ("tube.cli.servers:master", "Run a master."),
    "broker": ("tube.cli.servers:broker", "Run a broker, or several."),
    "produce": ("tube.cli.produce:produce", "Send the lines of standard input to a topic."),
    "consume": ("tube.cli.consume:consume", "Print the messages of topics."),
    "topic": ("tube.cli.topic:topic", "Create, list, change and delete topics."),
    "group": ("tube.cli.group:group", "Look at consumer groups, move their offsets."),
    "producer": ("tube.cli.producer:producer", "Look at producers."),
    "user": ("tube.cli.user:user", "Users of clients, their secrets and rights."),
    "broker-admin": ("tube.cli.broker_admin:broker_admin", "List brokers and set their state."),
    "bench": ("tube.cli.bench:bench", "Measure a running cluster."),
    "db": ("tube.cli.db:db", "Migrate and check the master's database."),
    "log": ("tube.cli.log:log", "Inspect and verify a data directory offline."),
    "doctor": ("tube.cli.doctor:doctor", "Look for what is wrong with a cluster."),
    "context": ("tube.cli.context:context", "Name clusters and choose one."),
    "completion": ("tube.cli.completion:completion", "Print the script that completes commands."),
}
"""Where each command is, and its line in the help; a test keeps the lines equal to the commands'."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of this name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands, without importing them, and options."""
        names = [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--master",
    envvar="TUBE_MASTER",
    metavar="HOST:PORT",
    help="Port for clients, or tubes://HOST:PORT.",
)
@click.option("--http", envvar="TUBE_HTTP", metavar="HOST:PORT", help="HTTP port of the master.")
@click.option("--token-file", envvar="TUBE_TOKEN_FILE", metavar="FILE", help="The admin token.")
@click.option("--user", envvar="TUBE_USER", metavar="NAME", help="Who signs, where masters ask.")
@click.option("--secret-file", envvar="TUBE_SECRET_FILE", metavar="FILE", help="The user's secret.")
@click.option("--ca-file", envvar="TUBE_CA_FILE", metavar="FILE", help="Authorities, for tubes://.")
@click.option("--context", envvar="TUBE_CONTEXT", metavar="NAME", help="A named cluster.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="tube", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, **_given: object) -> None:
    """Tube, a durable message queue that TubeMQ clients can use.

    Without options and contexts, commands talk to a master on this machine: clients on 127.0.0.1:8715,
    HTTP on 127.0.0.1:8080.
    """
    from tube.cli.cluster import choose

    ctx.obj = choose(ctx)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code."""
    debug = "--debug" in arguments
    try:
        result = cli.main(args=list(arguments), prog_name="tube", standalone_mode=False)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader is gone: nothing more can be said, and Python must not try to when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:  # the one edge of every command
        if debug:
            import traceback

            traceback.print_exc()
        report(error)
        return exit_code(error)
    return result if isinstance(result, int) else 0


def main() -> None:
    """The entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
