"""What a commit window and a read of the log cost; prints one JSON object.

Durable and written, 1 and 1,000 partitions are measured in turn within each round, so that the
machine's moods meet all of them.  Usage: ``python bench/log_commit.py [DIRECTORY]``.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tube.log.store import Append, LogOptions, LogStore

MESSAGE = os.urandom(1000)
ROUNDS = 5
WINDOWS = 100


def window(partitions: int, size: int, *, durable: bool, at: int, merged: bool) -> list[Append]:
    """Return a window of ``size`` messages, one block each, or one block per partition."""
    if merged and partitions == 1:
        return [Append(1, 0, [MESSAGE] * size, size, durable, at, at)]
    topic = 1 if partitions == 1 else 2
    return [
        Append(topic, (at * size + i) % partitions, MESSAGE, 1, durable, at, at)
        for i in range(size)
    ]


def measure_commit(
    store: LogStore, partitions: int, size: int, **kind: bool
) -> tuple[float, float]:
    """Return microseconds per message, elapsed and of processor time."""
    cpu = elapsed = 0.0
    for at in range(WINDOWS):
        appends = window(partitions, size, at=at, **kind)
        cpu -= time.process_time()
        elapsed -= time.perf_counter()
        store.commit(appends)
        elapsed += time.perf_counter()
        cpu += time.process_time()
    count = WINDOWS * size
    return elapsed / count * 1e6, cpu / count * 1e6


def measure_read(store: LogStore) -> tuple[float, float]:
    """Return megabytes per second elapsed and per second of processor time, from the page cache."""
    size = offset = 0
    cpu, began = time.process_time(), time.perf_counter()
    while True:
        result = store.read(1, 0, offset, 1024 * 1024)
        if not result.blocks:
            break
        size += sum(len(block.payload) for block in result.blocks)
        offset = result.next_offset
    elapsed = time.perf_counter() - began
    return size / elapsed / 1e6, size / (time.process_time() - cpu) / 1e6


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        store = LogStore.open(Path(name), broker_id=1, options=LogOptions(), now_ms=0)
        store.create(1, 0)
        for partition in range(1000):
            store.create(2, partition)
        kinds = [
            (partitions, size, durable, merged)
            for size in (100, 1000)
            for partitions in (1, 1000)
            for merged in ((False, True) if partitions == 1 else (False,))
            for durable in (True, False)
        ]
        samples: dict[str, list[tuple[float, float]]] = {}
        for _ in range(ROUNDS):
            for partitions, size, durable, merged in kinds:
                label = (
                    f"{'durable' if durable else 'written'} window={size} partitions={partitions}"
                    f"{' one block' if merged else ''}"
                )
                sample = measure_commit(store, partitions, size, durable=durable, merged=merged)
                samples.setdefault(label, []).append(sample)
            store.finish_checkpoint(store.begin_checkpoint())
        commits = {
            label: {
                "us_per_message": round(statistics.median(s[0] for s in some), 2),
                "cpu_us_per_message": round(statistics.median(s[1] for s in some), 2),
                "mb_per_s": round(1000 / statistics.median(s[0] for s in some), 1),
            }
            for label, some in samples.items()
        }
        elapsed, cpu = measure_read(store)
        store.close()
        began = time.perf_counter()
        store = LogStore.open(Path(name), broker_id=1, options=LogOptions(), now_ms=0)
        opened = time.perf_counter() - began
        usage = store.usage()
        store.close()
    result = {
        "machine": f"{platform.machine()} x{os.cpu_count()} Python {platform.python_version()}",
        "commit": commits,
        "read": {"mb_per_s": round(elapsed), "mb_per_cpu_s": round(cpu)},
        "open": {"s": round(opened, 3), "bytes": usage.bytes, "segments": usage.segments},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
