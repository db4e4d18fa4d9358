"""What the master does every second: drop the silent, rotate tokens and keys."""

from __future__ import annotations

from twisted.logger import Logger

from tube.master.brokers import Brokers
from tube.master.consumers import deactivate, left
from tube.master.core import Core

log = Logger(namespace="tube.master.upkeep")


class Upkeep:
    """Bodies of the master's tickers; each does nothing on a standby."""

    def __init__(self, core: Core, brokers: Brokers) -> None:
        self._core = core
        self._brokers = brokers

    async def every_second(self) -> None:
        """Drop everybody who was silent too long, and what follows from it."""
        core = self._core
        if not core.leader.leads:
            return
        now_s = core.now_s()
        for state in core.topology.expire(now_s, core.config.broker_timeout_s):
            core.held_brokers.supersede(state.row.broker_id)
            self._brokers.died(state, "expire", "is silent")
        producers, gone = core.registry.expire(now_s)
        for producer in producers:
            log.info("producer {client_id} is silent", client_id=producer.client_id)
        for one in gone:
            left(core, one, kind="expire", reason="was silent")
        self._brokers.rotate_tokens()
        await core.rotate_keys()
        await deactivate(core)

    def balance(self) -> None:
        """Look at every group, whether something changed or not."""
        if self._core.leader.leads:
            self._core.balancer.look_at_all()
