"""The door to consumer groups: who must sign waits outside until it has (ADR 0007).

An original consumer cannot sign its register, only the heartbeat after an answer that asks for it.  Until then
it is no member: nobody counts it, plans for it, or remembers its group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tube.auth.tokens import Rights
from tube.errors import CertificateError, NotRegisteredError
from tube.master.access import Claim, Waiting, check_consume
from tube.master.core import Core
from tube.master.registry import Wanted, check_consistent
from tube.values import ClientId, GroupName, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowIds:
    """Check ids that a client holds; None: it did not send one."""

    default: int | None = None
    group: int | None = None
    priority: int | None = None

    @property
    def asked(self) -> bool:
        """Whether the client wants to hear of rules at all."""
        return self.default is not None or self.group is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a consumer registers with."""

    client_id: ClientId
    group: GroupName
    host: str
    wanted: Wanted
    held: Collection[Partition] = ()
    flow: FlowIds = field(default_factory=FlowIds)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A consumer that showed who it is; ``waited`` is its registration when it is no member yet."""

    rights: Rights
    waited: Registration | None = None


class Entrance:
    """Lets consumers in that show who they are."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._outside: Waiting[Registration] = Waiting(core.config.consumer_timeout_s, core.now_s)

    def register(self, asked: Registration, claim: Claim) -> Rights | None:
        """Who it is; None when it waits outside now.

        Raises:
            CertificateError: its signature is wrong; or it shows nothing, in the name of a member.
            GroupForbiddenError: it may not consume a topic.
            InconsistentGroupError: it does not agree with the members.
        """
        core, key = self._core, (asked.group, asked.client_id)
        access = core.access
        rights = access.identify(claim, signs=access.consumers_sign)
        if rights is not None:
            check_consume(rights, asked.wanted.topics)
            self._outside.drop(key)
            return rights
        if core.registry.find(asked.group, asked.client_id) is not None:
            raise CertificateError(
                f"{asked.client_id} is a member, and this is not a proof to be it"
            )
        group = core.registry.groups.get(asked.group)
        if group is not None:
            check_consistent(asked.group, asked.wanted, group.members.values())
        access.answered(key)
        self._outside.put(key, asked)
        return None

    def heartbeat(self, group: GroupName, client_id: ClientId, claim: Claim) -> Admitted | None:
        """Let it in; None when it is asked to sign.

        A member that signs wrongly stays one until it is silent too long: anybody may say its name.

        Raises:
            NotRegisteredError: nobody of this name.  GroupForbiddenError: it may not consume a topic.
            CertificateError: it was asked to sign and did not, or wrong.
        """
        core, key = self._core, (group, client_id)
        access = core.access
        member, waited = core.registry.find(group, client_id), self._outside.get(key)
        if member is None and waited is None:
            raise NotRegisteredError(f"{client_id} is not a member of group {group}")
        try:
            rights = access.identify(claim, signs=access.consumers_sign)
            if rights is None:
                access.ask(key)
                return None
        except CertificateError:
            self._outside.drop(key)
            raise
        access.answered(key)
        self._outside.drop(key)
        if member is not None:
            check_consume(rights, member.wanted.topics)
            return Admitted(rights)
        assert waited is not None
        check_consume(rights, waited.wanted.topics)
        return Admitted(rights, waited)

    def close(self, group: GroupName, client_id: ClientId, claim: Claim) -> None:
        """It leaves.

        Raises:
            CertificateError: its signature is wrong; or it shows nothing, in the name of a member.
        """
        access = self._core.access
        self._outside.drop((group, client_id))
        rights = access.identify(claim, signs=access.consumers_sign)
        if rights is None and self._core.registry.find(group, client_id) is not None:
            raise CertificateError(f"{client_id} is a member, and this is not a proof to be it")
