"""Getting in: certificates, and the kubeconfig."""

import contextlib
import datetime
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from warren.base.errors import UserMistake
from warren.kube import kubeconfig, webhook
from warren.kube.admission import User
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.access import tls
from warren.kube.server.access.authentication import Authenticator

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


def shaken_by(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Return whom the server takes the client for; None if it will not have it."""
    near, far = socket.socketpair()
    with near, far:
        other = threading.Thread(target=lambda: greeted(client, near))
        other.start()
        try:
            with server.wrap_socket(far, server_side=True) as shaking:
                subject: Any = (shaking.getpeercert() or {})["subject"]
        except ssl.SSLError:
            return None
        finally:
            far.close()
            other.join()
    return str(dict(pair for each in subject for pair in each)["commonName"])


def greeted(context: ssl.SSLContext, near: socket.socket) -> None:
    with contextlib.suppress(OSError), context.wrap_socket(near, server_hostname="localhost") as it:
        it.recv(1)


def contents(directory: Path) -> list[bytes]:
    return [(directory / name).read_bytes() for name in FILES]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_server_is_trusted_on_loopback(pki: Path, name: str) -> None:
    server = tls.server_context(pki)
    access = ClusterAccess(server="", authority=tls.authority(pki), token="")
    shaken(server, access.tls(), name)


def test_the_server_is_trusted_under_no_other_name(pki: Path) -> None:
    server = tls.server_context(pki)
    access = ClusterAccess(server="", authority=tls.authority(pki), token="")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, access.tls(), "example.org")


SAFE = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]
CBC = ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384"]


def servers(pki: Path) -> list[ssl.SSLContext]:
    """Return the contexts of the API server, and of a webhook with the same keys."""
    return [
        tls.server_context(pki),
        webhook.rotating_context(pki / "server.crt", pki / "server.key"),
    ]


def limited(pki: Path, version: ssl.TLSVersion, ciphers: str) -> ssl.SSLContext:
    """Return a client's context for one version of TLS."""
    client = ClusterAccess(server="", authority=tls.authority(pki), token="").tls()
    client.minimum_version = client.maximum_version = version
    client.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    return client


@pytest.mark.parametrize("suite", SAFE)
def test_tls_1_2_is_spoken_with_suites_that_authenticate_what_they_encrypt(
    pki: Path, suite: str
) -> None:
    for server in servers(pki):
        shaken(server, limited(pki, ssl.TLSVersion.TLSv1_2, suite), "localhost")


@pytest.mark.parametrize("suite", CBC)
def test_tls_1_2_is_not_spoken_with_cbc(pki: Path, suite: str) -> None:
    for server in servers(pki):
        with pytest.raises(ssl.SSLError):
            shaken(server, limited(pki, ssl.TLSVersion.TLSv1_2, suite), "localhost")


def test_tls_1_3_is_spoken(pki: Path) -> None:
    for server in servers(pki):
        shaken(server, limited(pki, ssl.TLSVersion.TLSv1_3, "DEFAULT"), "localhost")


def test_keys_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "pki"
    tls.server_context(directory)
    before = contents(directory)
    tls.server_context(directory)

    assert contents(directory) == before
    assert stat.S_IMODE((directory / "server.key").stat().st_mode) == 0o600


YEAR = datetime.timedelta(days=365)


@pytest.mark.parametrize("later", [YEAR * 10 - datetime.timedelta(days=20), YEAR * 12])
def test_a_certificate_that_ends_soon_or_has_ended_is_signed_anew(
    tmp_path: Path, later: datetime.timedelta
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    tls.server_context(tmp_path / "pki", now=now - later)
    before = contents(tmp_path / "pki")
    server = tls.server_context(tmp_path / "pki", now=now)

    renewed = [old != new for old, new in zip(before, contents(tmp_path / "pki"), strict=True)]
    assert renewed == [True, True, False]
    authority = tls.authority(tmp_path / "pki")
    shaken(server, ClusterAccess(server="", authority=authority, token="").tls(), "localhost")


def test_a_client_that_knows_the_authority_trusts_what_it_has_signed_anew(tmp_path: Path) -> None:
    tls.server_context(tmp_path / "pki")
    known = ClusterAccess(server="", authority=tls.authority(tmp_path / "pki"), token="").tls()
    server = tls.server_context(tmp_path / "pki", renew_before=YEAR * 11)

    shaken(server, known, "localhost")


def test_a_certificate_of_the_future_is_refused_by_the_clock(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    tls.server_context(pki)

    with pytest.raises(UserMistake, match=f"{pki}/ca.crt is not valid before .*: set the clock"):
        tls.server_context(pki, now=datetime.datetime.now(datetime.UTC) - YEAR)


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def another(path: Path) -> None:
    """Put the file of another authority in the place of one."""
    tls.server_context(path.parent.parent / "another")
    path.write_bytes((path.parent.parent / "another" / path.name).read_bytes())


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "is missing": Path.unlink,
    "is empty": lambda path: path.write_bytes(b""),
    "is not a": halved,
    "is not a (certificate|private key)": lambda path: path.write_text("garbage"),
    "cannot be read .Is a directory.": a_directory,
    "is not (the key of|signed by)": another,
}


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.crt", "server.key"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_by_its_name_and_what_to_do(
    tmp_path: Path, name: str, damage: str
) -> None:
    pki = tmp_path / "pki"
    tls.server_context(pki)
    DAMAGES[damage](pki / name)

    with pytest.raises(UserMistake) as refused:
        tls.server_context(pki)
    # Of a key and a certificate that do not belong together, the key is named.
    stem = name.partition(".")[0] if damage == "is not (the key of|signed by)" else name
    told = rf"{pki}/{stem}\S* {damage}.*: restore it from a copy; or remove {pki} and start again, "
    assert re.match(told, str(refused.value))
    assert "\n" not in str(refused.value)


def test_certificates_of_two_authorities_are_refused(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    tls.server_context(pki)
    another(pki / "ca.crt")
    another(pki / "ca.key")

    with pytest.raises(UserMistake, match=f"{pki}/server.crt is not signed by ca.crt"):
        tls.server_context(pki)


def test_what_a_crash_left_half_made_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "pki.new").mkdir()
    (tmp_path / "pki.new" / "ca.crt").write_text("-----BEGIN")
    (tmp_path / "pki").mkdir()

    tls.server_context(tmp_path / "pki")
    assert [path.name for path in tmp_path.iterdir()] == ["pki"]


def test_keys_that_are_removed_as_a_whole_are_made_anew(tmp_path: Path) -> None:
    tls.server_context(tmp_path / "pki")
    before = contents(tmp_path / "pki")
    shutil.rmtree(tmp_path / "pki")
    tls.server_context(tmp_path / "pki")

    assert not set(before) & set(contents(tmp_path / "pki"))


# The kubeconfig

ACCESS = ClusterAccess(
    server="https://127.0.0.1:6443", authority=b"-----BEGIN\n\xff", token="s3cret"
)


def test_a_kubeconfig_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, ACCESS)

    assert kubeconfig.load(path) == ACCESS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write a kubeconfig with a change: `user` and `cluster` are those of its only context."""
    kubeconfig.write(path, ACCESS)
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))
    return path


def user_says(path: Path, **fields: Any) -> Path:
    def change(document: dict[str, Any]) -> None:
        document["users"][0]["user"] = {name.replace("_", "-"): fields[name] for name in fields}

    return rewritten(path, change)


def cluster_says(path: Path, **fields: Any) -> Path:
    def change(document: dict[str, Any]) -> None:
        cluster = document["clusters"][0]["cluster"]
        cluster |= {name.replace("_", "-"): fields[name] for name in fields}

    return rewritten(path, change)


def other_context(document: dict[str, Any]) -> None:
    document["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "u"}})
    document["users"].append({"name": "u", "user": {"token": "other"}})
    cluster = {"server": "https://x", "certificate-authority-data": ""}
    document["clusters"].append({"name": "c", "cluster": cluster})


OTHER = ClusterAccess(server="https://x", token="other")


def test_the_current_context_decides(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        other_context(document)
        document["current-context"] = "other"

    assert kubeconfig.load(rewritten(tmp_path / "kubeconfig", change)) == OTHER


def test_a_context_may_be_asked_for(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "kubeconfig", other_context)

    assert kubeconfig.load(path) == ACCESS
    assert kubeconfig.load(path, "other") == OTHER
    with pytest.raises(UserMistake, match="contexts/nobody"):
        kubeconfig.load(path, "nobody")


def test_a_client_certificate_is_written_for_a_user_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    access = ClusterAccess(
        server="https://example.org",
        authority=b"authority",
        certificate=b"certificate",
        key=b"key",
        server_name="kubernetes",
    )
    kubeconfig.write(path, access, user="agent")

    assert kubeconfig.load(path) == access
    assert [each["name"] for each in yaml.safe_load(path.read_text())["users"]] == ["agent"]


def test_a_server_that_need_not_be_known_is_written_and_read_back(tmp_path: Path) -> None:
    access = ClusterAccess(server="https://example.org", token="t", insecure=True)
    kubeconfig.write(tmp_path / "kubeconfig", access)

    assert kubeconfig.load(tmp_path / "kubeconfig") == access


def test_the_authority_may_be_in_a_file_beside_the_kubeconfig(tmp_path: Path) -> None:
    path = cluster_says(
        tmp_path / "kubeconfig", certificate_authority_data=None, certificate_authority="pki/ca.crt"
    )
    with pytest.raises(UserMistake, match=r"clusters/warren/certificate-authority: .*pki/ca.crt"):
        kubeconfig.load(path)

    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_bytes(b"authority")
    assert kubeconfig.load(path).authority == b"authority"


def test_without_an_authority_the_machines_own_are_asked(tmp_path: Path, pki: Path) -> None:
    path = cluster_says(tmp_path / "kubeconfig", certificate_authority_data=None)
    context = kubeconfig.load(path).tls()

    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(tls.server_context(pki), context, "localhost")


def test_a_server_that_need_not_be_known_is_not_asked_who_it_is(pki: Path) -> None:
    access = ClusterAccess(server="https://localhost", insecure=True)
    shaken(tls.server_context(pki), access.tls(), "example.org")


def test_a_client_shows_its_certificate(pki: Path) -> None:
    server = tls.server_context(pki)
    server.verify_mode = ssl.CERT_REQUIRED
    certificate, key = tls.issue(pki, "agent")
    access = ClusterAccess(
        server="", authority=tls.authority(pki), certificate=certificate, key=key
    )
    assert shaken_by(server, access.tls()) == "agent"
    nobody = ClusterAccess(server="", authority=tls.authority(pki))
    assert shaken_by(server, nobody.tls()) is None


@pytest.mark.parametrize("field", ["authority", "certificate"])
def test_a_certificate_that_is_none_is_the_users_to_mend(pki: Path, field: str) -> None:
    access = {"server": "https://x", "origin": "the file", field: b"-----BEGIN\n"}
    with pytest.raises(UserMistake, match=f"^the file: [a-z-]*{field}"):
        ClusterAccess(**access).tls()  # type: ignore[arg-type]


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    access = ClusterAccess(
        server="https://x", token="s3cret", certificate=b"c3rtificate", key=b"k3y"
    )
    given = kubeconfig.load(
        user_says(tmp_path / "kubeconfig", exec={"env": [{"name": "A", "value": "s3cret"}]})
    )
    for shown in (repr(access), repr(given), repr(given.source)):
        assert not any(each in shown for each in ("s3cret", "c3rtificate", "k3y"))


def test_of_several_files_the_first_ones_word_counts(tmp_path: Path) -> None:
    """As with kubectl: else we would speak with another cluster than it does."""
    one, two = tmp_path / "one", rewritten(tmp_path / "two", other_context)

    def change(document: dict[str, Any]) -> None:
        document["current-context"] = "other"
        document["contexts"] = None
        document["users"][0]["user"]["token"] = "first"

    rewritten(one, change)
    listed = f"{tmp_path / 'missing'}:{one}:{two}"
    assert kubeconfig.find(environ={"KUBECONFIG": listed}) == OTHER
    found = kubeconfig.find(context="warren", environ={"KUBECONFIG": listed})
    assert (found.token, found.server) == ("first", ACCESS.server)


def test_a_cluster_is_found_where_kubectl_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    nowhere = tmp_path / "nowhere"
    with pytest.raises(UserMistake, match="KUBECONFIG"):
        kubeconfig.find(environ={}, service_account=nowhere)

    (tmp_path / ".kube").mkdir()
    home = user_says(tmp_path / ".kube" / "config", token="home")
    assert kubeconfig.find(environ={}, service_account=nowhere).token == "home"
    variable = {"KUBECONFIG": str(user_says(tmp_path / "listed", token="listed"))}
    assert kubeconfig.find(environ=variable, service_account=nowhere).token == "listed"
    named = user_says(tmp_path / "named", token="named")
    assert kubeconfig.find(named, environ=variable).token == "named"
    home.unlink()
    with pytest.raises(UserMistake, match="missing: No such file"):
        kubeconfig.find(environ={"KUBECONFIG": str(tmp_path / "missing")})


def test_a_pod_finds_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    user_says(tmp_path / ".kube" / "config", token="home")
    account = tmp_path / "account"
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert kubeconfig.find(environ=pod, service_account=account).token == "home"

    account.mkdir()
    (account / "token").write_text("from-the-kubelet")
    with pytest.raises(UserMistake, match=str(account)):
        kubeconfig.find(environ=pod, service_account=account)
    (account / "ca.crt").write_text("authority")
    without = {**pod, "KUBERNETES_SERVICE_PORT": ""}
    with pytest.raises(UserMistake, match="KUBERNETES_SERVICE_PORT is '', not a port"):
        kubeconfig.find(environ=without, service_account=account)
    found = kubeconfig.find(environ=pod, service_account=account)
    assert (found.server, found.authority) == ("https://[fd00::1]:443", b"authority")
    assert found.source is not None
    assert found.source.fetch().authorization == "Bearer from-the-kubelet"
    assert kubeconfig.find(context="warren", environ=pod, service_account=account).token == "home"


DAMAGE: dict[str, Any] = {
    "kubeconfig: current-context: none is set": b"",
    "is not a kubeconfig": b"a: [b",
    "not a kubeconfig: ": b"\xff\xfe\x00",
    "got `array`": b"- 1",
    "got `str`": b"hello",
    "got `object` - at `$.contexts`": b"contexts: {a: b}",
    "current-context: none is set": b"current-context:",
    "contexts/a: there is none": b"current-context: a",
}


@pytest.mark.parametrize("said", DAMAGE, ids=repr)
def test_a_file_that_is_no_kubeconfig_is_the_users_to_mend(tmp_path: Path, said: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(DAMAGE[said])

    with pytest.raises(UserMistake, match=re.escape(said)) as mistake:
        kubeconfig.load(path)
    assert str(mistake.value).startswith(str(path))
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "users/admin: it says neither a token nor a client certificate"),
        ({"client_certificate": "x"}, "users/admin/client-key: it is missing"),
        ({"client_key_data": "eA=="}, "users/admin/client-certificate: it is missing"),
        ({"client_certificate": "x", "client_key": "y"}, "users/admin/client-certificate: "),
        ({"client_certificate_data": "%", "client_key": "y"}, "client-certificate-data: "),
        ({"token": 7}, "users/admin: Expected `str`, got `int` - at `$.token`"),
        ({"token": "two words"}, "users/admin: the token has characters"),
        ({"token": "t", "as": "admin"}, "users/admin/as: Warren does not impersonate"),
        ({"exec": "aws"}, "users/admin: Expected `object | null`, got `str` - at `$.exec`"),
    ],
)
def test_what_a_user_says_wrong_is_named_by_file_and_field(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    path = user_says(tmp_path / "kubeconfig", **fields)
    with pytest.raises(UserMistake, match=re.escape(f"{path}: ") + ".*" + re.escape(said)):
        kubeconfig.load(path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"server": None}, "clusters/warren: Object missing required field `server`"),
        ({"server": "example.org:6443"}, "clusters/warren/server: 'example.org:6443' does not"),
        ({"server": "http://example.org"}, "clusters/warren/server: http://example.org would"),
        ({"proxy_url": "http://p"}, "clusters/warren/proxy-url: "),
        ({"insecure_skip_tls_verify": True}, "clusters/warren/insecure-skip-tls-verify: "),
        ({"certificate_authority_data": "%%%"}, "clusters/warren/certificate-authority-data: "),
    ],
)
def test_what_a_cluster_says_wrong_is_named_by_file_and_field(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    path = cluster_says(tmp_path / "kubeconfig", **fields)
    with pytest.raises(UserMistake, match=re.escape(f"{path}: {said}")):
        kubeconfig.load(path)


def test_a_proxy_on_this_machine_is_told_no_secrets_and_needs_none(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["clusters"][0]["cluster"] = {"server": "http://localhost:8001"}
        del document["contexts"][0]["context"]["user"]

    path = rewritten(tmp_path / "kubeconfig", change)
    assert kubeconfig.load(path) == ClusterAccess(server="http://localhost:8001")


def test_a_kubeconfig_that_is_not_there_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="No such file"):
        kubeconfig.load(tmp_path / "kubeconfig")


def test_what_is_plain_is_read_without_the_official_package(tmp_path: Path) -> None:
    """It takes longer to import than everything else that an agent does at its start."""
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, ACCESS)
    script = (
        "import sys; from pathlib import Path; from warren.kube import http, kubeconfig; "
        "kubeconfig.load(Path(sys.argv[1])); assert 'kubernetes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


def test_bytes_that_are_no_text_are_no_token() -> None:
    users = Authenticator({"of-the-admin": User("admin", frozenset())})

    assert users.user("Bearer \udce9", None) is None
    assert users.user("Bearer of-the-admin", None) is not None
