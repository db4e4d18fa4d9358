"""A producer's registration with the master: topics in, routes and tokens out.

One registration serves all producers of a client.

Source: spec sections 3.1-3.3 and 13.2.
"""

from __future__ import annotations

from collections.abc import Callable

from tube.client.credentials import Credentials
from tube.client.link import Masters
from tube.client.options import ClientOptions
from tube.client.publishing import Publishing, retry_pause_s
from tube.client.runtime import Cancellable, Runtime, Signal
from tube.errors import (
    CertificateError,
    ClosedError,
    ForbiddenError,
    NoBrokerError,
    NotRegisteredError,
    TubeError,
)
from tube.pb import BrokerService_pb2 as broker_pb
from tube.pb import MasterService_pb2 as pb
from tube.wire import feature, rpc
from tube.wire.records import parse_broker, parse_route
from tube.wire.rpc import Method

FIRST_CHECKSUM = -1
"""brokerCheckSum of a producer that knows nothing: the answer has all brokers."""


class ProducerSession:
    """Registered as a producer, as long as there is somebody who sends.

    ``report`` hears of failures that are tried again.
    """

    def __init__(
        self,
        runtime: Runtime,
        masters: Masters,
        options: ClientOptions,
        client_id: str,
        report: Callable[[str], None],
    ) -> None:
        self.client_id = client_id
        self.publishing = Publishing(runtime.random_bits(16))
        self.tokens = broker_pb.AuthorizedInfo(visitAuthorizedToken=0)
        self.batches = False
        self._runtime = runtime
        self._masters = masters
        self._options = options
        self._credentials = Credentials(runtime, options, self.tokens)
        self._report = report
        self._topics: set[str] = set()
        self._checksum = FIRST_CHECKSUM
        self._registered = False
        self._loop: Cancellable | None = None
        self._hurry = Signal[None](runtime)
        self._heard = Signal[None](runtime)
        self._closed = False
        self.last_error: TubeError | None = None

    def publish(self, topic: str) -> None:
        """Add a topic; its routes come with the next answer."""
        if topic not in self._topics:
            self._topics.add(topic)
            self.refresh()

    def refresh(self) -> None:
        """Ask the master now."""
        if self._closed:
            return
        if self._loop is None:
            self._loop = self._runtime.spawn(self._run(), self._died)
        self._hurry.fire()

    async def known(self, topic: str, until_s: float) -> None:
        """Wait until the topic takes messages somewhere.

        Raises:
            NoBrokerError: it did not by ``until_s``; says what the master said.
            CertificateError: the master does not take this client.  ForbiddenError: it may not send there.
            ClosedError: the session is closed.
        """
        self.publish(topic)
        pause_s = 0.05
        while not self.publishing.knows(topic):
            if self._closed:
                raise ClosedError("the client is closed")
            left_s = until_s - self._runtime.now_s()
            if left_s <= 0:
                cause = f" ({self.last_error})" if self.last_error is not None else ""
                raise NoBrokerError(
                    f"no broker takes messages for topic {topic!r}{cause}",
                    hint=f"does it exist? try: tube topic describe {topic}",
                )
            if not await self._heard.wait(min(left_s, pause_s)):
                self.refresh()
            elif isinstance(self.last_error, CertificateError | ForbiddenError):
                self._topics.discard(topic)  # those that are allowed go on
                raise self.last_error
            pause_s = min(pause_s * 2, 1.0)

    async def close(self) -> None:
        """Say goodbye to the master."""
        self._closed = True
        self._heard.fire()
        if self._loop is None:
            return
        self._loop.cancel()
        self._loop = None
        if self._registered:
            request = pb.CloseRequestP2M(
                clientId=self.client_id, authInfo=self._credentials.show(sign=True)
            )
            try:
                await self._masters.call(Method.CLOSE_PRODUCER, request.SerializeToString(), 1.0)
            except TubeError as error:
                self._report(f"closing at the master: {error}")

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                if not self._registered:
                    await self._register()
                if await self._heartbeat():
                    continue
            except NotRegisteredError:
                self._registered = False
                continue
            except TubeError as error:
                self.last_error = error
                if isinstance(error, CertificateError):
                    self._registered = False  # registering signs
                self._report(f"master: {error}")
                attempt += 1
                self._heard.fire()
                await self._hurry.wait(retry_pause_s(attempt, self._runtime.random_bits(8) / 255))
                continue
            attempt = 0
            self.last_error = None
            self._heard.fire()
            await self._hurry.wait(self._options.heartbeat_s)

    async def _register(self) -> None:
        request = pb.RegisterRequestP2M(
            clientId=self.client_id,
            topicList=sorted(self._topics),
            brokerCheckSum=FIRST_CHECKSUM,
            hostName=self._runtime.identity().split("-", 1)[0],
            authInfo=self._credentials.show(sign=True),
            appdConfig=pb.ApprovedClientConfig(configId=-2),
            client_features=feature.ALL,
        )
        body = await self._masters.call(
            Method.REGISTER_PRODUCER, request.SerializeToString(), self._options.call_s
        )
        answer = rpc.parse(pb.RegisterResponseM2P, body)
        self._credentials.check(answer)
        self._registered = True
        self.batches = bool(answer.server_features & feature.BATCH)
        self._learn(answer)

    async def _heartbeat(self) -> bool:
        """True when the next one should follow at once."""
        request = pb.HeartRequestP2M(
            clientId=self.client_id,
            brokerCheckSum=self._checksum,
            hostName=self._runtime.identity().split("-", 1)[0],
            topicList=sorted(self._topics),
            authInfo=self._credentials.show(),
            appdConfig=pb.ApprovedClientConfig(configId=-2),
        )
        body = await self._masters.call(
            Method.HEARTBEAT_PRODUCER, request.SerializeToString(), self._options.call_s
        )
        answer = rpc.parse(pb.HeartResponseM2P, body)
        self._credentials.check(answer)
        self._learn(answer)
        self.publishing.learn_routes(parse_route(text) for text in answer.topicInfos)
        return self._credentials.asked(answer.requireAuth)

    def _learn(self, answer: pb.RegisterResponseM2P | pb.HeartResponseM2P) -> None:
        if answer.brokerInfos:
            self.publishing.learn_brokers(parse_broker(text) for text in answer.brokerInfos)
        self._checksum = answer.brokerCheckSum
        learn_tokens(self.tokens, answer)

    def _died(self, error: Exception) -> None:
        self._loop = None
        self._report(f"the producer's session failed: {error!r}")


def learn_tokens(
    tokens: broker_pb.AuthorizedInfo,
    answer: pb.RegisterResponseM2P
    | pb.HeartResponseM2P
    | pb.RegisterResponseM2C
    | pb.HeartResponseM2C,
) -> None:
    """Keep the newest tokens of an answer."""
    if answer.HasField("authorizedInfo"):
        tokens.visitAuthorizedToken = answer.authorizedInfo.visitAuthorizedToken
        if answer.authorizedInfo.HasField("authAuthorizedToken"):
            tokens.authAuthorizedToken = answer.authorizedInfo.authAuthorizedToken
