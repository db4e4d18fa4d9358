"""Authorities and certificates for tests, made when they are needed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates; its own is in ``file``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.file = str(folder / f"{name}.pem")
        self._folder = folder
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        certificate = made.sign(self._key, hashes.SHA256())
        Path(self.file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, host: str = "127.0.0.1") -> tuple[str, str]:
        """Files of a certificate for an address and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        made = self._builder(_named(name), key).add_extension(names, critical=False)
        cert_file, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate = made.sign(self._key, hashes.SHA256())
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(cert_file), str(key_file)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
