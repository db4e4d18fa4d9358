"""``tube consume``: prints the messages of topics, as a member of a group."""

from __future__ import annotations

import json
import secrets
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from tube.cli.cluster import Cluster, with_cluster
from tube.cli.complete import group_names, topic_names
from tube.cli.ends import Ends
from tube.cli.failures import INTERRUPTED, TERMINATED
from tube.cli.formats import LINE, compile_format, document
from tube.errors import StaleAssignmentError, TubeError

if TYPE_CHECKING:
    from tube.client import Consumer, Message

BATCH_MAX: Final = 1000
WAIT_S: Final = 0.2
"""How long one look for messages waits: a signal is noticed between two."""


class Stopped(BaseException):
    """A signal told us to leave."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@click.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "-g",
    "--group",
    shell_complete=group_names,
    help="Consumer group (default: one that is thrown away).",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a group without an offset starts.",
)
@click.option("-c", "--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option(
    "-e", "--exit-at-end", is_flag=True, help="End when everything that is there now was read."
)
@click.option(
    "--filter", "filters", multiple=True, metavar="NAME", help="Only messages of this type."
)
@click.option(
    "-f", "--format", "text", metavar="FORMAT", help="kcat's tokens, like '%t:%p:%o %k=%s\\n'."
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="One JSON object per line.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing about what the group does.")
@with_cluster
def consume(
    cluster: Cluster,
    /,
    *,
    topics: tuple[str, ...],
    group: str | None,
    start: str,
    count: int | None,
    exit_at_end: bool,
    filters: tuple[str, ...],
    text: str | None,
    output: str | None,
    quiet: bool,
) -> int:
    """Print the messages of topics.

    \b
    Tokens of --format: %t topic  %p partition  %b broker  %o offset  %k key  %s value  %S size
                        %T timestamp in ms  %h headers  %f filter  %%; and \\n \\t
    """
    from tube.client import ConsumerOptions

    if output and text:
        raise click.UsageError("either --format or -o, not both")
    write = _json_line if output else compile_format(text or LINE)
    name = group or f"tube-consume-{secrets.token_hex(4)}"
    ends = Ends.look(cluster.api(), topics, name, start) if exit_at_end else None
    # A broker says nothing about what its filter leaves out, so the end could not be seen: then we filter here.
    remote = dict.fromkeys(topics, filters) if filters and ends is None else None
    wanted = frozenset(filters) if filters and ends is not None else None
    code = 0
    try:
        with _leaving() as leaving, cluster.client() as client:
            consumer = client.consumer(
                topics,
                name,
                ConsumerOptions(start=start),
                filters=remote,
                on_assign=None if quiet else lambda found: _say("got", found),
                on_revoke=None if quiet else lambda found: _say("gave up", found),
            )
            _read(consumer, leaving, write, count, ends, wanted)
    except Stopped as stopped:
        code = stopped.code
    finally:
        if group is None:
            with suppress(TubeError):  # it would be forgotten in time anyway
                cluster.api(1.0).change("DELETE", f"/api/v1/groups/{name}")
    return code


def _read(
    consumer: Consumer,
    leaving: Leaving,
    write: Callable[[Message], bytes],
    count: int | None,
    ends: Ends | None,
    wanted: frozenset[str] | None,
) -> None:
    """Print until ``count`` messages were or the ends are reached; what was printed is acknowledged."""
    left = count
    while left != 0 and not (ends is not None and ends.reached()):
        with leaving.possible():
            messages = consumer.batches(min(BATCH_MAX, left or BATCH_MAX), WAIT_S)
        if not messages:
            if ends is not None:
                ends.look_again()
            continue
        shown = [m for m in messages if wanted is None or m.filter in wanted]
        sys.stdout.buffer.write(b"".join(map(write, shown)))
        sys.stdout.buffer.flush()
        newest = {message.partition: message for message in messages}
        for message in newest.values():
            with suppress(
                StaleAssignmentError
            ):  # it moved meanwhile; its new owner prints it again
                consumer.ack(message)
            if ends is not None:
                ends.read(message.partition, message.offset)
        left = None if left is None else left - len(shown)


def _json_line(message: Message) -> bytes:
    return json.dumps(document(message), ensure_ascii=False).encode() + b"\n"


def _say(what: str, partitions: Sequence[object]) -> None:
    names = " ".join(str(partition) for partition in partitions)
    click.echo(f"{what} {names}", err=True)


class Leaving:
    """Turns signals into ``Stopped``, but not between printing a message and acknowledging it."""

    def __init__(self) -> None:
        self._code: int | None = None
        self._possible = False

    @contextmanager
    def possible(self) -> Iterator[None]:
        """In this block, and at its end, a signal ends the command."""
        self._possible = True
        try:
            self._leave()
            yield
        finally:
            self._possible = False

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """A signal came; the first one counts, so that nothing disturbs the farewell."""
        del frame
        if self._code is None:
            self._code = INTERRUPTED if number == signal.SIGINT else TERMINATED
            self._leave()

    def _leave(self) -> None:
        if self._code is not None and self._possible:
            raise Stopped(self._code)


@contextmanager
def _leaving() -> Iterator[Leaving]:
    """Handle SIGINT and SIGTERM in this block."""
    leaving = Leaving()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, leaving.signalled) for number in numbers}
    try:
        yield leaving
    finally:
        for number, old in before.items():
            signal.signal(number, old)
