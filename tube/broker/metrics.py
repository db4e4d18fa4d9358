"""What a broker measures, read from its parts when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tube.broker.service import BrokerService
from tube.log.store import LogStore


@dataclass(slots=True, eq=False)  # the registry hashes collectors
class BrokerMetrics(Collector):
    """Collects from the broker's parts; nothing is counted twice, and nothing on the hot path."""

    service: BrokerService
    store: LogStore
    connections: Callable[[], int]
    registered: Callable[[], bool]
    lag_s: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        """All figures now."""
        service = self.service
        yield _counter(
            "tube_broker_appended_messages", "Messages kept", service.appender.committed_messages
        )
        yield _counter("tube_broker_appended_bytes", "Bytes kept", service.appender.committed_bytes)
        yield _counter("tube_broker_commit_windows", "Commit windows", service.appender.windows)
        yield _counter(
            "tube_broker_pulled_messages", "Messages given to consumers", service.pulled_messages
        )
        yield _counter("tube_broker_pulled_bytes", "Bytes given to consumers", service.pulled_bytes)
        yield _counter("tube_broker_tail_reads", "Reads from memory", service.reader.tail_reads)
        yield _counter("tube_broker_file_reads", "Reads from files", service.reader.file_reads)
        yield _gauge("tube_broker_connections", "Open connections", self.connections())
        yield _gauge("tube_broker_holds", "Partitions held by consumers", len(service.holders))
        yield _gauge(
            "tube_broker_registered", "1 if a master knows this broker", int(self.registered())
        )
        yield _gauge("tube_reactor_lag_seconds", "Delay of the last 100 ms tick", self.lag_s())
        usage = self.store.usage()
        yield _gauge("tube_broker_log_bytes", "Bytes of segments", usage.bytes)
        yield _gauge("tube_broker_journal_bytes", "Bytes of the journal", usage.journal_bytes)
        yield _gauge("tube_broker_disk_free_bytes", "Free bytes of the disk", usage.free_bytes)
        yield _gauge(
            "tube_broker_read_only", "1 if the log takes nothing", int(usage.read_only is not None)
        )
        yield self._partitions()

    def _partitions(self) -> Metric:
        family = GaugeMetricFamily(
            "tube_broker_next_offset", "Next offset of a partition", labels=["topic", "partition"]
        )
        for facts in self.service.describe((), None):
            family.add_metric([facts.topic, str(facts.partition_id)], facts.bounds.next_offset)
        return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
