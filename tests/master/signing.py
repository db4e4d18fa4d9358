"""A master that wants signatures, and clients that sign as the test wants."""

from __future__ import annotations

import itertools
import time

from cryptography.fernet import Fernet

from tube.config import TokenConfig
from tube.pb import MasterService_pb2 as pb
from tube.wire.message import signature

SECRET = "correct horse"
_nonces = itertools.count(1)


def tokens(tmp_path, **options) -> TokenConfig:
    """Options of a master where all must sign."""
    file = tmp_path / "cluster.key"
    if not file.exists():
        file.write_bytes(Fernet.generate_key())
    values = {
        "cluster_key_file": str(file),
        "sign_producers": True,
        "sign_consumers": True,
    } | options
    return TokenConfig(**values)


def sign(user="ann", secret=SECRET, *, late_ms=0, nonce=None, token="") -> pb.MasterCertificateInfo:
    """A signature of now."""
    at_ms = time.time_ns() // 1_000_000 - late_ms
    nonce = next(_nonces) if nonce is None else nonce
    info = pb.AuthenticateInfo(
        userName=user,
        timestamp=at_ms,
        nonce=nonce,
        othParams="",
        signature=signature(user, secret, at_ms, nonce),
    )
    return pb.MasterCertificateInfo(authInfo=info, authorizedToken=token)


def shows(token: str) -> pb.MasterCertificateInfo:
    """A token only."""
    return pb.MasterCertificateInfo(authorizedToken=token)


async def add_user(http, name="ann", produce=("*",), consume=("*",), secret=SECRET):
    """A user."""
    body = {"name": name, "secret": secret, "produce": list(produce), "consume": list(consume)}
    answer = await http("POST", "/api/v1/users", body)
    assert http.last_status == 200, answer
    return answer
