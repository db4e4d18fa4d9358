"""How a client shows the master who it is: signatures with its user's secret, tokens in between.

Source: spec sections 7.1, 7.2.
"""

from __future__ import annotations

from tube.client.options import ClientOptions
from tube.client.runtime import Runtime
from tube.errors import CertificateError, InconsistentGroupError, RefusedError, TubeError
from tube.pb import BrokerService_pb2 as broker_pb
from tube.pb import MasterService_pb2 as pb
from tube.wire import rpc
from tube.wire.message import signature

NONCE_BITS = 31

Answer = pb.RegisterResponseM2P | pb.HeartResponseM2P | pb.RegisterResponseM2C | pb.HeartResponseM2C


class Credentials:
    """Of one producer session or consumer; ``tokens`` are the newest that the master gave."""

    def __init__(
        self, runtime: Runtime, options: ClientOptions, tokens: broker_pb.AuthorizedInfo
    ) -> None:
        self._runtime = runtime
        self._user = options.user
        self._secret = options.secret
        self._tokens = tokens
        self._asked = False

    def show(self, *, sign: bool = False) -> pb.MasterCertificateInfo:
        """What a call carries: the token, and a fresh signature when the master wants one or ``sign`` is set."""
        info = pb.MasterCertificateInfo(authorizedToken=self._tokens.authAuthorizedToken)
        if self._user and (sign or self._asked):
            nonce, at_ms = self._runtime.random_bits(NONCE_BITS), self._runtime.wall_ms()
            info.authInfo.userName = self._user
            info.authInfo.timestamp = at_ms
            info.authInfo.nonce = nonce
            info.authInfo.othParams = ""
            info.authInfo.signature = signature(self._user, self._secret, at_ms, nonce)
        return info

    def asked(self, require_auth: bool) -> bool:
        """What an answer to a heartbeat says; True when the next one should come at once, to sign.

        Raises:
            CertificateError: there is no user to sign as.
        """
        again = require_auth and not self._asked
        self._asked = require_auth
        if require_auth and not self._user:
            raise self._explained(CertificateError("this cluster wants signed clients"))
        return again

    def check(self, answer: Answer) -> None:
        """Check that an answer is no refusal.

        Raises:
            TubeError: it is one; a CertificateError says what the user of the SDK can do.
        """
        if not answer.success:
            raise self._explained(rpc.error_from_code(answer.errCode, answer.errMsg))

    def final(self, error: TubeError, *, registered: bool) -> bool:
        """Whether a consumer fails for good with this error: it will not be taken, however often it asks."""
        if isinstance(error, InconsistentGroupError):
            return True
        if isinstance(error, CertificateError) and not self._user:
            return True
        return isinstance(error, RefusedError) and not error.retriable and not registered

    def _explained(self, error: TubeError) -> TubeError:
        if isinstance(error, CertificateError):
            error.hint = (
                f"is the secret that of user {self._user!r}, and this machine's clock right?"
                if self._user
                else "give the client a user: ClientOptions(user=…, secret=…), tube --user … --secret-file …"
            )
        return error
