"""Holds or watches the lease: whether this master leads, and in which epoch (ADR 0004)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from twisted.logger import Logger

from tube.errors import StandbyError, StoreError
from tube.master.database import Database
from tube.master.db import lease
from tube.master.db.lease import Candidate, Lease

log = Logger(namespace="tube.master.leader")

RENEW: Final = 0.3
"""A lease is renewed after this part of it: two renewals may fail before it ends."""


class Leader:
    """Renews the lease and says whether we lead; call ``tick`` every ``RENEW`` of the lease.

    ``taken(epoch)`` is awaited when we got the lease, before we serve; ``lost()`` is called when we do not lead
    any more.  The deadline counts from before the statement was sent, on the monotonic clock ``now_s``.
    """

    def __init__(
        self,
        database: Database,
        me: Candidate,
        now_s: Callable[[], float],
        taken: Callable[[int], Awaitable[None]],
        lost: Callable[[], None],
    ) -> None:
        self._database = database
        self._me = me
        self._now_s = now_s
        self._taken = taken
        self._lost = lost
        self._deadline_s = 0.0
        self._serving = False
        self.epoch = 0
        self.seen: Lease | None = None
        self.database_fails = ""

    @property
    def leads(self) -> bool:
        """Whether this master leads now."""
        return self._serving and self._now_s() < self._deadline_s

    @property
    def address(self) -> str:
        """Where the leading master listens for RPC, "" when unknown."""
        return self.seen.address if self.seen is not None else ""

    @property
    def http_address(self) -> str:
        """Where the leading master listens for HTTP, "" when unknown."""
        return self.seen.http_address if self.seen is not None else ""

    def require(self, client_id: str = "") -> int:
        """The epoch in which we lead.

        Raises:
            StandbyError: we do not lead.  Its text is the original's (spec section 1.4).
        """
        if not self.leads:
            text = f"{self._me.address} is not master now."
            if client_id:
                text += f" the connecting client id is {client_id}"
            led = bool(self.http_address) and self.address != self._me.address
            hint = f"the leader is at {self.http_address}" if led else "no master leads now"
            raise StandbyError(text, hint=hint)
        return self.epoch

    async def tick(self) -> None:
        """Renew or try to take the lease."""
        before_s = self._now_s()
        try:
            found = await self._database.write(lease.take_or_renew, self._me)
        except StoreError as error:
            if not self.database_fails:
                log.warn("the lease cannot be renewed: {error}", error=str(error))
            self.database_fails = str(error)
            if self._serving and not self.leads:
                self.step_down("the lease ended")
            return
        self.database_fails = ""
        self.seen = found
        if found.holder != self._me.holder:
            if self._serving:
                self.step_down(f"{found.address} leads in epoch {found.epoch}")
            return
        if self._serving and found.epoch != self.epoch:
            self.step_down("the lease had ended and was taken again")
        self._deadline_s = before_s + self._me.ttl_ms / 1000
        if not self._serving:
            await self._taken(found.epoch)
            self.epoch = found.epoch
            self._serving = True
            log.info("this master leads", epoch=found.epoch)

    def step_down(self, reason: str, *, planned: bool = False) -> None:
        """Lead no more; the next tick may take the lease again, in a new epoch."""
        if self._serving:
            self._serving = False
            tell = log.info if planned else log.warn
            tell("this master leads no more: {reason}", reason=reason, epoch=self.epoch)
            self._lost()

    async def release(self) -> None:
        """Stop leading and let the next master begin at once."""
        led = self._serving
        self.step_down("stopping", planned=True)
        if led:
            try:
                await self._database.write(lease.release, self._me.holder)
            except StoreError as error:
                log.warn("the lease could not be given back: {error}", error=str(error))
