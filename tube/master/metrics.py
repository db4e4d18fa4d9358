"""What a master measures, read from its parts when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tube.master.core import Core
from tube.master.gateway import MasterGateway


@dataclass(slots=True, eq=False)
class MasterMetrics(Collector):
    """Collects from the master's parts."""

    core: Core
    gateway: MasterGateway
    connections: Callable[[], int]
    lag_s: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        """All figures now."""
        core, gateway = self.core, self.gateway
        members = sum(len(group.members) for group in core.registry.groups.values())
        alive = sum(state.alive for state in core.topology.brokers.values())
        partitions = sum(sum(t.partitions.values()) for t in core.topology.topics.values())
        held = len(core.held_consumers) + len(core.held_brokers)
        gauges = [
            ("tube_master_leads", "1 if this master leads", int(core.leader.leads)),
            ("tube_master_epoch", "Epoch of the lease", core.leader.epoch),
            ("tube_master_connections", "Open connections", self.connections()),
            ("tube_master_held_heartbeats", "Heartbeats that wait", held),
            ("tube_master_brokers_alive", "Brokers alive", alive),
            ("tube_master_topics", "Topics", len(core.topology.topics)),
            ("tube_master_partitions", "Partitions of all topics", partitions),
            ("tube_master_groups", "Groups with members", len(core.registry.groups)),
            ("tube_master_consumers", "Consumers alive", members),
            ("tube_master_producers", "Producers alive", len(core.registry.producers)),
            ("tube_reactor_lag_seconds", "Delay of the last 100 ms tick", self.lag_s()),
        ]
        counters = [
            ("tube_master_calls", "Calls taken", gateway.calls),
            ("tube_master_calls_refused", "Calls refused", gateway.calls_refused),
            ("tube_master_plans", "Groups planned in this epoch", core.balancer.planned),
            ("tube_master_moves", "Partitions given to members", core.balancer.moves),
            ("tube_master_history_dropped_rows", "Events lost", core.chronicle.dropped),
        ]
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value=value)
        for name, text, value in counters:
            yield CounterMetricFamily(name, text, value=value)
