"""Certificates for a server on loopback and its clients, from an authority of their own."""

import datetime
import ipaddress
import os
import shutil
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from warren.base.errors import UserMistake
from warren.kube import serving

_VALID_YEARS: Final = 10
_PEM: Final = serialization.Encoding.PEM


def server_context(
    directory: Path,
    *,
    now: datetime.datetime | None = None,
    renew_before: datetime.timedelta = datetime.timedelta(days=30),
) -> ssl.SSLContext:
    """Return a TLS context for 127.0.0.1, with keys made in `directory` if it is not there.

    Clients may show a certificate of the same authority, and need not. What ends within
    `renew_before` is signed anew, for the same keys. Raises UserMistake where a file is damaged.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    if not directory.is_dir() or not any(directory.iterdir()):
        _make_files(directory, now)
    keys = _read_keys(directory, now)
    if min(keys.ca.not_valid_after_utc, keys.server.not_valid_after_utc) - now < renew_before:
        _renew(directory, keys, now)
    context = serving.tls_server(directory / "server.crt", directory / "server.key")
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def issue(directory: Path, user: str, groups: Iterable[str] = ()) -> tuple[bytes, bytes]:
    """Return a client's certificate, which names a user and its groups, and its key, as PEM."""
    authority_key = _read_key(directory / "ca.key")
    issuer = x509.load_pem_x509_certificate(authority(directory)).subject
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, user),
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
        ]
    )
    certificate = (
        _builder(subject, issuer, key.public_key(), datetime.datetime.now(datetime.UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return certificate.public_bytes(_PEM), _key_pem(key)


def authority(directory: Path) -> bytes:
    """Return the authority's certificate, which clients trust, as PEM."""
    return (directory / "ca.crt").read_bytes()


# The files


class _Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The certificates of an authority and of a server, and their private keys."""

    ca: x509.Certificate
    ca_key: ec.EllipticCurvePrivateKey
    server: x509.Certificate
    server_key: ec.EllipticCurvePrivateKey


def _read_keys(directory: Path, now: datetime.datetime) -> _Keys:
    """Read the files. Raises UserMistake, with the name of the first that cannot be used."""
    ca, ca_key = _read_pair(directory, "ca", now)
    server, server_key = _read_pair(directory, "server", now)
    try:
        server.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise _damaged(directory / "server.crt", "is not signed by ca.crt beside it") from error
    return _Keys(ca=ca, ca_key=ca_key, server=server, server_key=server_key)


def _read_pair(
    directory: Path, name: str, now: datetime.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    path = directory / f"{name}.crt"
    try:
        certificate = x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise _damaged(path, "is not a certificate") from error
    key = _read_key(directory / f"{name}.key")
    if certificate.public_key() != key.public_key():
        raise _damaged(directory / f"{name}.key", f"is not the key of {name}.crt beside it")
    not_before = certificate.not_valid_before_utc
    if not_before > now:
        raise UserMistake(
            f"{path} is not valid before {not_before:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M} here: set the clock of this machine."
        )
    return certificate, key


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(_read(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _damaged(path, "is not a private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _damaged(path, "is not a key on an elliptic curve")
    return key


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _damaged(path, "is missing") from None
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error
    if not content:
        raise _damaged(path, "is empty")
    return content


def _damaged(path: Path, what: str) -> UserMistake:
    return UserMistake(
        f"{path} {what}: restore it from a copy; or remove {path.parent} and start again, which "
        "makes new keys and writes every kubeconfig anew."
    )


def _make_files(directory: Path, now: datetime.datetime) -> None:
    """Make keys and certificates: all or none, so that a file that is missing was removed."""
    unfinished = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700, parents=True)
    ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca, server = _certificates(ca_key, server_key, now)
    for name, data in (
        ("ca.crt", ca.public_bytes(_PEM)),
        ("ca.key", _key_pem(ca_key)),
        ("server.crt", server.public_bytes(_PEM)),
        ("server.key", _key_pem(server_key)),
    ):
        _write(unfinished / name, data)
    unfinished.rename(directory)


def _renew(directory: Path, keys: _Keys, now: datetime.datetime) -> None:
    """Put new certificates in the place of those that end, for the same keys.

    Each is as good beside an old one as beside a new one.
    """
    ca, server = _certificates(keys.ca_key, keys.server_key, now)
    for name, certificate in (("ca.crt", ca), ("server.crt", server)):
        unfinished = directory / f"{name}.new"
        _write(unfinished, certificate.public_bytes(_PEM))
        unfinished.rename(directory / name)


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


# Certificates


def _certificates(
    ca_key: ec.EllipticCurvePrivateKey,
    server_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> tuple[x509.Certificate, x509.Certificate]:
    """Return the certificates of an authority, and of a server on loopback."""
    issuer = _name("warren")
    ca = (
        _builder(issuer, issuer, ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        _builder(_name("warren-apiserver"), issuer, server_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return ca, server


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        _PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=365 * _VALID_YEARS))
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
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
