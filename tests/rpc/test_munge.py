"""Credentials of MUNGE: what the library answers, and what is made of it.

The contract holds for the fake and for a munged, which the tests have for themselves.
"""

import hashlib
import os
import socket as sockets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.harness import users
from warren.daemons import munged
from warren.rfc import signed_request
from warren.rfc.errors import BadFormat
from warren.rfc.signed_request import NotProven
from warren.rpc import munge
from warren.rpc.munge import CannotEncode, DecodedCredential, Munge, NotInstalled, Unreachable

NOW = 1_000_000
LARGEST = 2**20


class FakeLibrary:
    """libmunge with a daemon of its own: it knows what it has encoded, and who has asked."""

    def __init__(self) -> None:
        self.userid = os.getuid()
        self.issued: dict[bytes, DecodedCredential] = {}
        self.status = 0
        """What is answered about every call, if not 0."""

    def encode(self, payload: bytes) -> tuple[int, str, bytes]:
        if self.status:
            return self.status, f"error {self.status}", b""
        if len(payload) > LARGEST:
            return 3, f"length of {len(payload)} exceeds max", b""
        credential = b"MUNGE:%b%d:" % (hashlib.sha1(payload).hexdigest().encode(), len(self.issued))
        self.issued[credential] = DecodedCredential(
            status=0, problem="", userid=self.userid, payload=payload, encoded_at=NOW
        )
        return 0, "", credential

    def decode(self, credential: bytes) -> DecodedCredential:
        found = self.issued.get(credential)
        if found is None:
            return DecodedCredential(
                status=14, problem="Invalid credential", userid=2**32 - 1, payload=b"", encoded_at=0
            )
        if self.status:
            return replace(found, status=self.status, problem=f"error {self.status}")
        self.issued[credential] = replace(found, status=17, problem="Replayed credential")
        return found


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary()


@pytest.fixture(scope="module")
def munge_socket() -> Iterator[Path]:
    why = users.without_munge()
    if why is not None:
        pytest.skip(why)
    with users.common_ground() as ground, munged.running(ground / "munge") as socket:
        yield socket


@pytest.fixture(params=["fake", "munged"])
def credentials(request: pytest.FixtureRequest) -> tuple[Munge, float]:
    """MUNGE, and the time by its clock."""
    if request.param == "fake":
        fake = FakeLibrary()
        return Munge(lambda: fake), NOW
    return munge.system_munge(str(request.getfixturevalue("munge_socket"))), time.time()


# The contract


@pytest.mark.parametrize("payload", [b"", b"x", b"a\0b\xff", b"\0" * 33])
def test_a_credential_tells_who_has_encoded_what_and_when(
    credentials: tuple[Munge, float], payload: bytes
) -> None:
    found, now = credentials
    decoded = found.decode(found.encode(payload))
    assert (decoded.payload, decoded.userid) == (payload, os.getuid())
    assert abs(decoded.encoded_at - now) < 60


def test_a_credential_is_read_as_often_as_it_is_asked(credentials: tuple[Munge, float]) -> None:
    found, _ = credentials
    credential = found.encode(b"x")
    assert len({found.decode(credential) for _ in range(3)}) == 1


@pytest.mark.parametrize("forge", ["", "MUNGE:AAAA:", "none", "é", "MUNGE:\0:", "{}x"])
def test_what_munge_has_not_made_proves_nothing(
    credentials: tuple[Munge, float], forge: str
) -> None:
    found, _ = credentials
    with pytest.raises(NotProven, match="credential"):
        found.decode(forge.format(found.encode(b"x")))


def test_what_is_too_long_is_refused(credentials: tuple[Munge, float]) -> None:
    found, _ = credentials
    with pytest.raises(CannotEncode, match=f"does not encode {2 * LARGEST} bytes: "):
        found.encode(b"x" * 2 * LARGEST)


def test_a_request_is_signed_and_proven(credentials: tuple[Munge, float]) -> None:
    found, now = credentials
    token = munge.wrap(b"{}", os.getuid(), found)

    for _ in range(2):  # by the instance, and by the shell
        request = munge.unwrap(token, found, now=now, ttl=60, userid=os.getuid())
        assert (request.payload, request.userid) == (b"{}", os.getuid())

    with pytest.raises(NotProven, match="signed by user"):
        munge.unwrap(token, found, now=now, ttl=60, userid=os.getuid() + 1)
    with pytest.raises(NotProven, match="s ago, and holds for 60 s"):
        munge.unwrap(token, found, now=now + 1000, ttl=60)
    header, _, signature = token.split(".")
    with pytest.raises(NotProven, match="not over this request"):
        munge.unwrap(f"{header}.e319.{signature}", found, now=now, ttl=60)


def test_no_user_signs_for_another(credentials: tuple[Munge, float]) -> None:
    found, now = credentials
    token = munge.wrap(b"{}", os.getuid() + 1, found)
    with pytest.raises(NotProven, match=f"user {os.getuid()} has signed it"):
        munge.unwrap(token, found, now=now, ttl=60)


def test_a_request_that_is_not_signed_is_no_matter_for_munge(
    credentials: tuple[Munge, float],
) -> None:
    found, now = credentials
    with pytest.raises(BadFormat, match="a mechanism other than 'munge'"):
        munge.unwrap(signed_request.wrap(b"{}", os.getuid()), found, now=now, ttl=60)


# What the library answers


@pytest.mark.parametrize("status", [15, 17])
def test_a_credential_that_is_expired_or_was_used_is_good_enough(
    library: FakeLibrary, status: int
) -> None:
    found = Munge(lambda: library)
    credential = found.encode(b"x")
    library.status = status
    assert found.decode(credential).payload == b"x"


@pytest.mark.parametrize("status", [2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 16, 18, 99])
def test_a_credential_that_is_not_accepted_proves_nothing(
    library: FakeLibrary, status: int
) -> None:
    found = Munge(lambda: library)
    credential = found.encode(b"x")
    library.status = status
    with pytest.raises(NotProven, match=f"MUNGE does not accept the credential: error {status}"):
        found.decode(credential)


@pytest.mark.parametrize("status", [1, 5, 6, 7])
def test_a_trouble_of_munge_itself_is_waited_out(library: FakeLibrary, status: int) -> None:
    found = Munge(lambda: library)
    credential = found.encode(b"x")
    library.status = status
    with pytest.raises(Unreachable, match=f"MUNGE does not answer: error {status}"):
        found.decode(credential)
    with pytest.raises(Unreachable, match=f"MUNGE does not answer: error {status}"):
        found.encode(b"x")


def test_the_library_is_loaded_once_and_not_before_it_is_needed(library: FakeLibrary) -> None:
    loads = []

    def load() -> FakeLibrary:
        loads.append(1)
        return library

    found = Munge(load)
    assert loads == []
    found.decode(found.encode(b"x"))
    assert loads == [1]


def test_a_machine_without_libmunge_is_told_so() -> None:
    found = munge.system_munge(library_name="libnowhere.so.2")
    with pytest.raises(
        NotInstalled, match=r"cannot be signed by MUNGE on this machine: libnowhere\.so\.2 cannot"
    ):
        found.encode(b"x")


def test_nothing_is_proven_where_no_daemon_listens(munge_socket: Path) -> None:
    assert munge.refusal(str(munge_socket)) is None
    for lacking in (munge_socket.with_name("other"), munge_socket.with_name("key")):
        assert str(munge.refusal(str(lacking))).startswith(f"no munged listens at {lacking}, ")


def test_the_socket_of_a_daemon_that_was_killed_proves_nothing(
    munge_socket: Path, tmp_path: Path
) -> None:
    left, busy = tmp_path / "left", tmp_path / "busy"
    with sockets.socket(sockets.AF_UNIX) as killed:
        killed.bind(str(left))
        killed.listen()
        assert munge.refusal(str(left)) is None
    assert left.is_socket()
    assert str(munge.refusal(str(left))).startswith(f"no munged listens at {left}, ")
    # One that takes its time is asked later.
    with sockets.socket(sockets.AF_UNIX) as slow:
        slow.bind(str(busy))
        slow.listen(0)
        assert [munge.refusal(str(busy)) for _ in range(4)] == [None] * 4


def test_nothing_is_proven_without_libmunge() -> None:
    why = munge.refusal(library_name="libnowhere.so.2")
    assert str(why).endswith("libnowhere.so.2 cannot be loaded")


def test_the_library_knows_where_munge_usually_listens(munge_socket: Path) -> None:
    usual = munge.load().socket_path()
    assert usual.startswith("/")
    assert munge.load(str(munge_socket)).socket_path() == str(munge_socket)
    assert (munge.refusal() is None) == munge.listens(usual)


def test_a_daemon_that_does_not_listen_is_told(credentials: tuple[Munge, float]) -> None:
    found = munge.system_munge("/nowhere/munge.socket")
    with pytest.raises((Unreachable, NotInstalled), match="MUNGE"):
        found.encode(b"x")
