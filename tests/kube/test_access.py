"""Getting in: certificates, and the kubeconfig."""

import datetime
import socket
import ssl
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from warren.base.errors import UserMistake
from warren.kube import kubeconfig
from warren.kube.kubeconfig import Access
from warren.kube.server import tls

FILES = ("ca.crt", "server.crt", "server.key")


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Shake hands. Raises ssl.SSLError where one does not trust the other."""
    near, far = socket.socketpair()
    with near, far:

        def serve() -> None:
            try:
                server.wrap_socket(far, server_side=True).close()
            except OSError:
                far.close()

        other = threading.Thread(target=serve)
        other.start()
        try:
            client.wrap_socket(near, server_hostname=name).close()
        finally:
            near.close()
            other.join()


def contents(directory: Path) -> list[bytes]:
    return [(directory / name).read_bytes() for name in FILES]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_server_is_trusted_on_loopback(pki: Path, name: str) -> None:
    server = tls.ensure(pki)
    access = Access(server="", authority=tls.authority(pki), token="")
    shaken(server, access.tls(), name)


def test_the_server_is_trusted_under_no_other_name(pki: Path) -> None:
    server = tls.ensure(pki)
    access = Access(server="", authority=tls.authority(pki), token="")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, access.tls(), "example.org")


def test_keys_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "pki"
    tls.ensure(directory)
    before = contents(directory)
    tls.ensure(directory)

    assert contents(directory) == before
    assert stat.S_IMODE((directory / "server.key").stat().st_mode) == 0o600


def test_a_certificate_that_ends_soon_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls.ensure(tmp_path)
    before = contents(tmp_path)
    monkeypatch.setattr(tls, "_RENEW", datetime.timedelta(days=365 * 11))
    server = tls.ensure(tmp_path)

    assert not set(before) & set(contents(tmp_path))
    shaken(
        server, Access(server="", authority=tls.authority(tmp_path), token="").tls(), "localhost"
    )


@pytest.mark.parametrize("missing", ["server.crt", "server.key", "ca.crt"])
def test_what_a_crash_left_half_made_is_made_again(tmp_path: Path, missing: str) -> None:
    tls.ensure(tmp_path)
    (tmp_path / missing).unlink()

    server = tls.ensure(tmp_path)
    shaken(
        server, Access(server="", authority=tls.authority(tmp_path), token="").tls(), "localhost"
    )


def test_a_certificate_that_was_half_written_is_made_again(tmp_path: Path) -> None:
    tls.ensure(tmp_path)
    certificate = tmp_path / "server.crt"
    certificate.write_bytes(certificate.read_bytes()[:100])

    server = tls.ensure(tmp_path)
    shaken(
        server, Access(server="", authority=tls.authority(tmp_path), token="").tls(), "localhost"
    )


# The kubeconfig

ACCESS = Access(server="https://127.0.0.1:6443", authority=b"-----BEGIN\n\xff", token="s3cret")


def test_a_kubeconfig_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, ACCESS)

    assert kubeconfig.load(path) == ACCESS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_current_context_decides(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, ACCESS)
    document = yaml.safe_load(path.read_text())
    document["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "u"}})
    document["users"].append({"name": "u", "user": {"token": "other"}})
    document["clusters"].append(
        {"name": "c", "cluster": {"server": "x", "certificate-authority-data": ""}}
    )
    document["current-context"] = "other"
    path.write_text(yaml.safe_dump(document))

    assert kubeconfig.load(path) == Access(server="x", authority=b"", token="other")


def _damaged(how: str, document: dict[str, Any]) -> bytes:
    match how:
        case "empty":
            return b""
        case "not yaml":
            return b"a: [b"
        case "not text":
            return b"\xff\xfe\x00"
        case "a list":
            return b"- 1"
        case "a word":
            return b"hello"
        case "no context":
            document["current-context"] = "nowhere"
        case "no token":
            document["users"][0]["user"] = {"client-certificate": "x"}
        case "no authority":
            del document["clusters"][0]["cluster"]["certificate-authority-data"]
        case "no base64":
            document["clusters"][0]["cluster"]["certificate-authority-data"] = "%%%"
        case "sections of another shape":
            document["contexts"] = {"a": "b"}
    return yaml.safe_dump(document).encode()


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "not yaml",
        "not text",
        "a list",
        "a word",
        "no context",
        "no token",
        "no authority",
        "no base64",
        "sections of another shape",
    ],
)
def test_a_file_that_is_no_kubeconfig_is_the_users_to_mend(tmp_path: Path, how: str) -> None:
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, ACCESS)
    path.write_bytes(_damaged(how, yaml.safe_load(path.read_text())))

    with pytest.raises(UserMistake, match=str(path)):
        kubeconfig.load(path)


def test_a_kubeconfig_that_is_not_there_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="No such file"):
        kubeconfig.load(tmp_path / "kubeconfig")
