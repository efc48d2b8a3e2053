"""Certificates for a server on loopback and its clients, from an authority of their own."""

import datetime
import ipaddress
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEARS: Final = 10
_RENEW: Final = datetime.timedelta(days=30)


def ensure(directory: Path) -> ssl.SSLContext:
    """Give a TLS context for 127.0.0.1, with keys made in `directory` if need be.

    Clients may show a certificate of the same authority, and need not.
    """
    certificate, key = directory / "server.crt", directory / "server.key"
    files = [directory / name for name in ("ca.crt", "ca.key", "server.key")]
    if not (_usable(certificate) and all(file.exists() for file in files)):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def issue(directory: Path, user: str, groups: Iterable[str] = ()) -> tuple[bytes, bytes]:
    """Give a client's certificate and key, as PEM: the user it names, and the user's groups."""
    authority_key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority(directory)).subject
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, user),
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
        ]
    )
    certificate = (
        _builder(subject, issuer, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _pem(key)


def authority(directory: Path) -> bytes:
    """Give the authority's certificate, which clients trust, as PEM."""
    return (directory / "ca.crt").read_bytes()


def _usable(certificate: Path) -> bool:
    try:
        known = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError):
        return False
    return known.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > _RENEW


def _make(directory: Path) -> None:
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("warren")
    ca = (
        _builder(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        _builder(_name("warren-apiserver"), issuer, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    for name, data in (
        ("ca.crt", ca.public_bytes(pem)),
        ("ca.key", _pem(authority_key)),
        ("server.key", _pem(server_key)),
        ("server.crt", server.public_bytes(pem)),
    ):
        path = directory / name
        path.touch(mode=0o600)
        path.write_bytes(data)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
