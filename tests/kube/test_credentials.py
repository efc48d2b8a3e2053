"""Who we are: told by files, by programs and by the official package, and told anew in time."""

import asyncio
import base64
import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.journal.running import really
from tests.kube.clusters import eventually
from warren.base.errors import UserMistake
from warren.base.times import rfc3339
from warren.kube import kubeconfig
from warren.kube.client import Unavailable
from warren.kube.credentials import (
    FixedCredentials,
    Identity,
    IdentitySource,
    PluginSource,
    RenewedCredentials,
    bearer,
)
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.access import tls

EXEC = "client.authentication.k8s.io/v1"


@dataclass
class Hand:
    """A clock whose hand is moved by the test."""

    time: float = 1_790_000_000.0

    def now(self) -> float:
        return self.time


@dataclass
class Told:
    """A source that gives answers in order, the last one again and again."""

    answers: list[Identity | Exception]
    refresh_seconds: float | None = None
    origin: str = "the source"
    asked: int = 0
    go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.go.set()

    def fetch(self) -> Identity:
        self.go.wait(60)
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def named(name: str, until: float = float("inf")) -> Identity:
    return Identity(authorization=name, expires=until)


async def caught_up(credentials: RenewedCredentials) -> None:
    """Wait until the source has said what it was asked."""
    await eventually(lambda: credentials._pending is None or credentials._pending.done())


# When a source is asked


@really
async def test_what_lasts_is_asked_for_once() -> None:
    clock, source = Hand(), Told([named("a"), named("b")])
    credentials = RenewedCredentials(source, clock)
    for _ in range(3):
        assert await credentials.current() == named("a")
        clock.time += 1e9
    assert source.asked == 1


@really
async def test_others_are_asked_for_before_those_that_are_held_end_and_no_job_waits() -> None:
    clock = Hand()
    source = Told([named("a", clock.now() + 100), named("b", clock.now() + 1000)])
    credentials = RenewedCredentials(source, clock)
    assert await credentials.current() == named("a")
    clock.time += 70
    assert await credentials.current() == named("a")
    assert source.asked == 1

    source.go.clear()
    clock.time += 20
    assert await credentials.current() == named("a")
    source.go.set()
    await caught_up(credentials)
    assert await credentials.current() == named("b")
    assert source.asked == 2


@really
async def test_those_that_have_ended_are_not_given_out() -> None:
    clock = Hand()
    source = Told([named("a", clock.now() + 100), named("b")])
    credentials = RenewedCredentials(source, clock)
    await credentials.current()
    clock.time += 101
    assert await credentials.current() == named("b")


@really
async def test_a_source_that_is_to_be_looked_at_again_is() -> None:
    clock, source = Hand(), Told([named("a"), named("b")], refresh_seconds=60)
    credentials = RenewedCredentials(source, clock)
    await credentials.current()
    clock.time += 59
    assert await credentials.current() == named("a")
    assert source.asked == 1
    clock.time += 1
    await credentials.current()
    await caught_up(credentials)
    assert await credentials.current() == named("b")


@really
async def test_all_who_want_to_know_ask_once() -> None:
    source = Told([named("a")])
    source.go.clear()
    credentials = RenewedCredentials(source, Hand())
    asking = [asyncio.ensure_future(credentials.current()) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    source.go.set()
    assert await asyncio.gather(*asking[1:]) == [named("a")] * 4
    assert source.asked == 1


@really
async def test_what_was_refused_is_asked_for_anew_but_not_again_and_again() -> None:
    clock, source = Hand(), Told([named("a"), named("a"), named("b")])
    credentials = RenewedCredentials(source, clock)
    await credentials.current()
    assert await credentials.renew(named("a")) == named("a")
    assert await credentials.renew(named("a")) == named("a")
    assert source.asked == 2
    clock.time += 5
    assert await credentials.renew(named("a")) == named("b")
    assert await credentials.renew(named("a")) == named("b")
    assert source.asked == 3
    assert await FixedCredentials(named("a")).renew(named("a")) == named("a")


@really
async def test_a_failure_does_not_end_what_is_still_good() -> None:
    clock = Hand()
    source = Told([named("a", clock.now() + 100), Unavailable("not now"), named("b")])
    credentials = RenewedCredentials(source, clock)
    await credentials.current()
    clock.time += 81
    await credentials.current()
    await caught_up(credentials)
    assert await credentials.current() == named("a")
    assert source.asked == 2
    clock.time += 20
    assert await credentials.current() == named("b")


@really
async def test_a_source_that_fails_is_left_alone_for_a_while() -> None:
    clock, source = Hand(), Told([UserMistake("install it"), named("a")])
    credentials = RenewedCredentials(source, clock)
    for _ in range(3):
        with pytest.raises(UserMistake, match="install it"):
            await credentials.current()
    assert source.asked == 1
    clock.time += 5
    assert await credentials.current() == named("a")


@really
async def test_a_source_that_does_not_answer_is_not_waited_for_but_heard_later() -> None:
    source = Told([named("a")], origin="the file: users/x/exec")
    source.go.clear()
    credentials = RenewedCredentials(source, Hand(), wait_seconds=0.01)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"the file: users/x/exec gives no answer in 0.01 s"):
            await credentials.current()
    source.go.set()
    await caught_up(credentials)
    assert await credentials.current() == named("a")
    assert source.asked == 1


# What files say


def configured(path: Path, **user: Any) -> ClusterAccess:
    """Return the access of a kubeconfig whose user says this."""
    kubeconfig.write(path, ClusterAccess(server="https://x", token="t"))
    document = yaml.safe_load(path.read_text())
    document["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(document))
    return kubeconfig.load(path)


def source_of(access: ClusterAccess) -> IdentitySource:
    assert access.source is not None
    return access.source


@really
async def test_a_token_in_a_file_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    access = configured(tmp_path / "kubeconfig", token="other", tokenFile="token")
    clock = Hand()
    credentials = access.credentials(clock)
    assert (await credentials.current()).authorization == "Bearer one"

    (tmp_path / "token").write_text("two\n")
    refused = await credentials.current()
    assert refused.authorization == "Bearer one"
    assert (await credentials.renew(refused)).authorization == "Bearer two"

    (tmp_path / "token").write_text("three\n")
    clock.time += 60
    assert isinstance(credentials, RenewedCredentials)
    await credentials.current()
    await caught_up(credentials)
    assert (await credentials.current()).authorization == "Bearer three"


@really
@pytest.mark.parametrize("said", ["is empty", "No such file"])
async def test_a_token_file_that_is_being_written_is_asked_for_again(
    tmp_path: Path, said: str
) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    clock = Hand()
    credentials = configured(tmp_path / "kubeconfig", tokenFile="token").credentials(clock)
    held = await credentials.current()

    token.write_text("") if said == "is empty" else token.unlink()
    with pytest.raises(Unavailable, match=said):
        await credentials.renew(held)
    assert await credentials.current() == held
    token.write_text("two\n")
    clock.time += 5
    assert (await credentials.renew(held)).authorization == "Bearer two"


@really
async def test_a_certificate_whose_key_is_not_written_yet_does_not_replace_the_one_before(
    tmp_path: Path, pki: Path
) -> None:
    tls.server_context(pki)
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    pairs = [tls.issue(pki, name) for name in ("one", "two")]
    certificate.write_bytes(pairs[0][0])
    key.write_bytes(pairs[0][1])
    fields = {"client-certificate": "client.crt", "client-key": "client.key"}
    clock = Hand()
    credentials = configured(tmp_path / "kubeconfig", **fields).credentials(clock)
    held = await credentials.current()
    assert (held.certificate, held.key) == pairs[0]

    for incomplete in (b"", pairs[1][0]):
        certificate.write_bytes(incomplete)
        clock.time += 60
        with pytest.raises(Unavailable, match="client-certificate"):
            await credentials.renew(held)
        assert await credentials.current() == held
    key.write_bytes(pairs[1][1])
    clock.time += 5
    found = await credentials.renew(held)
    assert (found.certificate, found.key) == pairs[1]


@really
async def test_a_certificate_with_another_ones_key_is_the_users_to_mend_at_first(
    tmp_path: Path, pki: Path
) -> None:
    tls.server_context(pki)
    (tmp_path / "client.crt").write_bytes(tls.issue(pki, "one")[0])
    (tmp_path / "client.key").write_bytes(tls.issue(pki, "two")[1])
    fields = {"client-certificate": "client.crt", "client-key": "client.key"}
    credentials = configured(tmp_path / "kubeconfig", **fields).credentials(Hand())
    with pytest.raises(UserMistake, match="client-certificate and client-key: not usable"):
        await credentials.current()


def test_a_certificate_in_files_is_read_anew(tmp_path: Path) -> None:
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    certificate.write_bytes(b"one")
    key.write_bytes(b"1")
    fields = {"client-certificate": "client.crt", "client-key": str(key)}
    source = source_of(configured(tmp_path / "kubeconfig", **fields))
    assert source.fetch() == Identity(certificate=b"one", key=b"1")
    certificate.write_bytes(b"two")
    assert source.fetch() == Identity(certificate=b"two", key=b"1")


@pytest.mark.parametrize(
    ("token", "said"),
    [(None, "token: No such file"), (" \n", "token is empty"), ("a\nb", "characters")],
)
def test_a_token_in_a_file_that_is_none_is_the_users_to_mend(
    tmp_path: Path, token: str | None, said: str
) -> None:
    if token is not None:
        (tmp_path / "token").write_text(token)
    with pytest.raises(UserMistake, match=f"kubeconfig: users/admin.*{said}"):
        configured(tmp_path / "kubeconfig", tokenFile="token")


@pytest.mark.parametrize("token", ["a b", "a\r\nX-Evil: 1", "é", "\x7f"])
def test_no_token_becomes_another_header(token: str) -> None:
    with pytest.raises(UserMistake, match=r"^here: "):
        bearer(token, "here")


# What programs say


def plugin(path: Path, script: str, **settings: Any) -> PluginSource:
    """Write a program, and a kubeconfig whose user asks it."""
    program = path / "who"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    told = {"apiVersion": EXEC, "command": "./who", "interactiveMode": "Never", **settings}
    source = configured(path / "kubeconfig", exec=told).source
    assert isinstance(source, PluginSource)
    return source


def status(**fields: Any) -> str:
    told = {"apiVersion": EXEC, "kind": "ExecCredential", "status": fields}
    return f"echo '{json.dumps(told)}'"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_program_tells_a_token_and_when_it_ends(tmp_path: Path, version: str) -> None:
    end = 1_790_000_000.0
    script = status(token="t", expirationTimestamp=rfc3339(end)).replace("/v1", f"/{version}")
    found = plugin(tmp_path, script, apiVersion=EXEC.replace("/v1", f"/{version}")).fetch()
    assert (found.authorization, found.expires) == ("Bearer t", end)


def test_a_program_tells_a_certificate(tmp_path: Path) -> None:
    found = plugin(tmp_path, status(clientCertificateData="c", clientKeyData="k")).fetch()
    assert found == Identity(certificate=b"c", key=b"k")
    assert found.expires == float("inf")


def test_a_program_is_told_what_the_kubeconfig_says(tmp_path: Path) -> None:
    script = f"""
    printf '%s' "$KUBERNETES_EXEC_INFO" > info
    {status(token="TOKEN").replace("TOKEN", "'$1-$REALM'")}
    """
    settings = {"args": ["me"], "env": [{"name": "REALM", "value": "east"}]}
    found = plugin(tmp_path, script, provideClusterInfo=True, **settings).fetch()
    assert found.authorization == "Bearer me-east"
    info = json.loads((tmp_path / "info").read_text())
    assert info["apiVersion"] == EXEC
    assert info["spec"]["cluster"] == {"server": "https://x"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo first you log in >&2; echo then you ask >&2; exit 1", "first you log in then you"),
        ("echo nonsense", "failed to decode"),
        ("echo '{}'", "missing key"),
        (status(), "neither a token nor a certificate"),
        (status(clientCertificateData="c"), "neither a token nor a certificate"),
        (status(token="t", expirationTimestamp="soon"), "expirationTimestamp"),
        (status(token="t").replace('{"token": "t"}', "[]"), "no status"),
    ],
)
def test_a_program_that_fails_may_be_asked_later(tmp_path: Path, script: str, said: str) -> None:
    source = plugin(tmp_path, script)
    with pytest.raises(Unavailable, match=f"kubeconfig: users/admin/exec: .*{said}") as failure:
        source.fetch()
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"command": "no-such-program"}, "no-such-program cannot be run here. Get it there."),
        ({"command": "./neither"}, "./neither cannot be run here. Get it there."),
        ({"args": 7}, "'int' object is not iterable"),
        ({"env": [{"name": "A"}]}, "Expected key value in exec/env"),
    ],
)
def test_a_program_that_cannot_be_run_is_the_users_to_mend(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    source = plugin(tmp_path, status(token="t"), installHint="Get it\nthere.", **settings)
    with pytest.raises(UserMistake, match=f"kubeconfig: users/admin/exec.*{said}"):
        source.fetch()


@really
async def test_a_program_that_takes_too_long_is_ended_with_what_it_has_started(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    source = plugin(tmp_path, "sleep 600 & echo $! > pid; wait")
    for seconds in (0.2, 2.0, 20.0, 120.0):
        with pytest.raises(Unavailable, match="users/admin/exec"):
            PluginSource(**{**vars(source), "timeout": seconds}).fetch()
        if pid.exists() and pid.read_text().strip():
            break  # on a loaded machine it takes a while until it has started anything
    process = int(pid.read_text())
    await eventually(lambda: _dead(process))


def _dead(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


# What the official package reads


def test_a_password_is_read_by_the_official_package(tmp_path: Path) -> None:
    access = configured(tmp_path / "kubeconfig", username="me", password="s3cret")
    header = "Basic " + base64.b64encode(b"me:s3cret").decode()
    assert source_of(access).fetch().authorization == header
    assert "s3cret" not in repr(access.source)


def test_a_provider_is_asked_by_the_official_package(tmp_path: Path) -> None:
    parts = [{"alg": "none"}, {"exp": 4_000_000_000}, {}]
    token = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    )
    provider = {"name": "oidc", "config": {"id-token": token}}
    source = source_of(configured(tmp_path / "kubeconfig", **{"auth-provider": provider}))
    assert source.fetch().authorization == f"Bearer {token}"


@pytest.mark.parametrize(
    ("provider", "error"),
    [
        ({"name": "azure", "config": {}}, UserMistake),
        ({"name": "oidc", "config": {}}, Unavailable),
        ({"name": "gcp", "config": {"cmd-path": "/nowhere/gcloud"}}, Unavailable),
    ],
)
def test_a_provider_that_says_nothing_is_named(
    tmp_path: Path, provider: dict[str, Any], error: type[Exception]
) -> None:
    source = source_of(configured(tmp_path / "kubeconfig", **{"auth-provider": provider}))
    with pytest.raises(error, match="kubeconfig: users/admin/auth-provider: "):
        source.fetch()


def test_what_needs_a_package_that_is_not_installed_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    source = configured(tmp_path / "kubeconfig", exec={"apiVersion": EXEC, "command": "x"}).source

    assert source is not None
    with pytest.raises(
        UserMistake, match=r"users/admin/exec: .*pip install 'warren\[kubernetes\]'"
    ):
        source.fetch()
