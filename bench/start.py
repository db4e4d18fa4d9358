"""How long until Tube is usable: ``tube --help``, imports, ``tube dev`` to ready, to the first message consumed.

Each is paired with an empty interpreter in the same run, since machines differ.
"""

from __future__ import annotations

import subprocess
import sys
import time

from bench.harness import dev, report, spread
from tube.client import Client

RUNS = 7


def command_ms(*arguments: str) -> float:
    """Elapsed milliseconds of a command."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started) * 1000


def first_message_s() -> tuple[float, float, float, float]:
    """Seconds to ready, to the first message consumed; MiB before and after it."""
    started = time.monotonic()
    with dev() as server:
        idle_mib = server.resident_mib()
        server.create_topic("demo", 1)
        with Client(server.url) as client:
            client.producer("demo").send(b"hello").result(10)
            consumer = client.consumer(["demo"], "readers")
            while not consumer.batches(1, 1.0):
                pass
            consumed_s = time.monotonic() - started
        return server.ready_s, consumed_s, idle_mib, server.resident_mib()


def main() -> None:
    """Measure."""
    empty, helped, imported, ready, consumed, idle, resident = [], [], [], [], [], [], []
    for _ in range(RUNS):
        empty.append(command_ms("-c", "pass"))
        helped.append(command_ms("-m", "tube.cli.main", "--help"))
        imported.append(command_ms("-c", "import tube.client"))
        ready_s, consumed_s, idle_mib, mebibytes = first_message_s()
        ready.append(ready_s)
        consumed.append(consumed_s)
        idle.append(idle_mib)
        resident.append(mebibytes)
    report(
        "start",
        {
            "empty_interpreter_ms": spread(empty, 1),
            "tube_help_ms": spread(helped, 1),
            "import_blocking_client_ms": spread(imported, 1),
            "dev_ready_s": spread(ready),
            "dev_first_message_consumed_s": spread(consumed),
            "dev_resident_mib_idle": spread(idle, 1),
            "dev_resident_mib_after_one_message": spread(resident, 1),
        },
    )


if __name__ == "__main__":
    main()
