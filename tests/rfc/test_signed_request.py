"""Signed requests (RFC 15, 39) and the pairs in their header (RFC 38)."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import signed_request
from warren.rfc.errors import BadFormat
from warren.rfc.signed_request import Credential, NotProven


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def token(header: bytes, signature: str = "none") -> str:
    return f"{b64(header)}.{b64(b'{}')}.{signature}"


GOOD = b"version\0i1\0userid\0i5588\0mechanism\0snone\0"
MUNGED = GOOD.replace(b"none", b"munge")
CREDENTIAL_PATTERN = "MUNGE:AwQFAAC3z2Fw:"


def test_a_request_is_wrapped_with_the_header_that_flux_writes() -> None:
    assert signed_request.wrap(b"{}", 5588) == token(GOOD)
    assert signed_request.encode_pairs({"version": 1, "userid": 5588, "mechanism": "none"}) == GOOD


@pytest.mark.parametrize(
    ("signed", "problem"),
    [
        ("", "HEADER.PAYLOAD.SIGNATURE"),
        ("a.b", "HEADER.PAYLOAD.SIGNATURE"),
        (token(GOOD) + ".none", "HEADER.PAYLOAD.SIGNATURE"),
        ("?.e30=.none", "header is not base64 from 0 on"),
        (f"{b64(GOOD)}.?.none", "payload is not base64 from 0 on"),
        (f"{b64(GOOD)}.é.none", "payload is not base64 from 0 on"),
        (f"{b64(GOOD)}.e3 0=.none", "payload is not base64 from 2 on"),
        (f"{b64(GOOD)}.e30.none", "payload is not base64 from 3 on"),
        (f"{b64(GOOD)}.e30=e30=.none", "payload is not base64 from 3 on"),
        (f"{b64(GOOD)}.e30=\n.none", "payload is not base64 from 3 on"),
        (f"{b64(GOOD)}.e31=.none", "payload is not base64 as it is written: e31="),
        (token(GOOD[:-1]), "cut off in the pair at byte 24"),
        (token(GOOD + b"more\0"), "cut off in the pair at byte 40"),
        (token(GOOD + b"more"), "cut off in the pair at byte 40"),
        (token(GOOD + b"\0i1\0"), "pair at byte 40 has an empty key"),
        (token(GOOD + b"more\0\0"), "more at byte 45 has a type other than"),
        (token(b""), "version, userid, mechanism, but nothing"),
        (token(GOOD[:-16]), "version, userid, mechanism, but version, userid"),
        (token(GOOD + b"more\0i1\0"), "but version, userid, mechanism, more"),
        (token(GOOD + b"userid\0i0\0"), "userid comes again at byte 40"),
        (token(GOOD + b"x" * 4096), "4136 bytes, over 4096"),
        (token(b"version\0i2" + GOOD[10:]), "version is 2, not 1"),
        (token(b"version\0btrue" + GOOD[10:]), "version is True, not 1"),
        (token(GOOD.replace(b"i5588", b"s5588")), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i-1")), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i4294967295")), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i 1")), "userid at byte 18 is not an integer: ' 1'"),
        (token(GOOD.replace(b"i5588", b"i+1")), "userid at byte 18 is not an integer"),
        (token(GOOD.replace(b"i5588", b"i05588")), "userid at byte 18 is not an integer"),
        (token(GOOD.replace(b"i5588", b"i")), "userid at byte 18 is not an integer"),
        (token(GOOD.replace(b"i5588", "i٣".encode())), "userid at byte 18 is not an integer"),
        (token(GOOD.replace(b"i5588", b"i" + b"9" * 500)), "at byte 18 is not an integer"),
        (token(GOOD.replace(b"i5588", b"i\xff")), "pair at byte 11 is not UTF-8"),
        (token(GOOD.replace(b"i5588", b"x5588")), "userid at byte 18 has a type other than"),
        (token(GOOD.replace(b"snone", b"scurve")), "mechanism is unknown: 'curve'"),
        (token(GOOD.replace(b"snone", b"s")), "mechanism is unknown: ''"),
        (token(GOOD.replace(b"snone", b"i1")), "mechanism is unknown: 1"),
        (token(MUNGED, CREDENTIAL_PATTERN), "a mechanism other than 'none': 'munge'"),
        (token(MUNGED), "a mechanism other than 'none': 'munge'"),
        (token(GOOD, "forged"), "'none' is not 'none'"),
        (token(GOOD, "none\n"), "'none' is not 'none'"),
        (token(GOOD, ""), "'none' is not 'none'"),
    ],
)
def test_a_request_that_was_tampered_with_is_refused(signed: str, problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        signed_request.unwrap(signed)


def test_a_request_of_another_user_is_refused() -> None:
    signed = signed_request.wrap(b"{}", 5588)
    assert signed_request.unwrap(signed, userid=5588).userid == 5588
    with pytest.raises(NotProven, match="signed by user 5588, not by user 1000"):
        signed_request.unwrap(signed, userid=1000)


def test_a_request_without_end_is_refused() -> None:
    with pytest.raises(BadFormat, match="has 21 characters, over 20"):
        signed_request.unwrap("." * 21, longest=20)


@given(st.binary(max_size=60), st.integers(0, 2**32 - 2))
def test_a_request_reads_back(payload: bytes, userid: int) -> None:
    unwrapped = signed_request.unwrap(signed_request.wrap(payload, userid), userid=userid)
    assert (unwrapped.payload, unwrapped.userid, unwrapped.mechanism) == (payload, userid, "none")


@given(st.data())
def test_a_changed_character_is_never_read_as_the_same_request(data: st.DataObject) -> None:
    signed = signed_request.wrap(b'{"version":1}', 5588)
    place = data.draw(st.integers(0, len(signed) - 1))
    letter = data.draw(st.characters(codec="ascii").filter(lambda each: each != signed[place]))
    try:
        read = signed_request.unwrap(signed[:place] + letter + signed[place + 1 :])
    except BadFormat:
        return
    assert (read.payload, read.userid) != (b'{"version":1}', 5588)


# Mechanism munge


def munged() -> signed_request.SignedRequest:
    return signed_request.unwrap(token(MUNGED, CREDENTIAL_PATTERN), mechanisms=("none", "munge"))


def test_what_munge_signs_is_a_digest_of_header_and_payload() -> None:
    request = munged()
    assert (request.mechanism, request.signature) == ("munge", CREDENTIAL_PATTERN)
    assert request.signed_part == signed_request.signed_part(b"{}", 5588, "munge")
    proof = signed_request.credential_payload(request.signed_part)
    assert proof == b"\x01" + hashlib.sha256(f"{b64(MUNGED)}.e30=".encode()).digest()
    assert len(proof) == 33


@pytest.mark.parametrize("age", [-5.0, 0.0, 60.0])
def test_a_request_is_proven_by_a_credential_that_fits(age: float) -> None:
    request = munged()
    credential = Credential(
        userid=5588,
        payload=signed_request.credential_payload(request.signed_part),
        encoded_at=1000.0 - age,
    )
    signed_request.verify(request, credential, now=1000.0, ttl=60.0)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"userid": 1000}, "claims user 5588, and user 1000 has signed"),
        ({"payload": b""}, "not over this request"),
        ({"payload": signed_request.credential_payload("")}, "not over this request"),
        ({"payload": b"\x02" + hashlib.sha256(b"").digest()}, "not over this request"),
        ({"encoded_at": 939.0}, "signed 61 s ago, and holds for 60 s"),
    ],
)
def test_a_credential_that_does_not_fit_proves_nothing(
    changed: dict[str, Any], problem: str
) -> None:
    request = munged()
    good = {
        "userid": 5588,
        "payload": signed_request.credential_payload(request.signed_part),
        "encoded_at": 1000.0,
    }
    with pytest.raises(NotProven, match=problem):
        signed_request.verify(request, Credential(**{**good, **changed}), now=1000.0, ttl=60.0)


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "none",
        "MUNGE:",
        "MUNGE::",
        "MUNGE:a b:",
        CREDENTIAL_PATTERN + "\n",
        CREDENTIAL_PATTERN * 2,
    ],
)
def test_a_signature_that_is_no_credential_is_refused(signature: str) -> None:
    with pytest.raises(BadFormat, match="is no credential"):
        signed_request.unwrap(token(MUNGED, signature), mechanisms=("munge",))


def test_mechanism_none_is_refused_where_munge_is_asked_for() -> None:
    with pytest.raises(BadFormat, match="a mechanism other than 'munge': 'none'"):
        signed_request.unwrap(token(GOOD), mechanisms=("munge",))


# Pairs (RFC 38)

DBL_MAX = 1.7976931348623157e308
DIGITS = str(int(DBL_MAX))

VECTORS = [
    ("PATH", "/bin:/usr/bin", "PATH\0s/bin:/usr/bin\0"),
    ("EMPTY_STRING", "", "EMPTY_STRING\0s\0"),
    ("JOB_ID_STRING", "ƒuzzybunny", "JOB_ID_STRING\0sƒuzzybunny\0"),
    ("INT_PLUS", 42, "INT_PLUS\0i42\0"),
    ("INT_MINUS", -42, "INT_MINUS\0i-42\0"),
    ("INT64_MAX", 9223372036854775807, "INT64_MAX\0i9223372036854775807\0"),
    ("INT64_MIN", -9223372036854775808, "INT64_MIN\0i-9223372036854775808\0"),
    ("DOUBLE", 3.0, "DOUBLE\0d3.000000\0"),
    ("DOUBLE_INF", float("inf"), "DOUBLE_INF\0dinf\0"),
    ("DBL_MIN", 2.2250738585072014e-308, "DBL_MIN\0d0.000000\0"),
    ("DBL_MAX", DBL_MAX, f"DBL_MAX\0d{DIGITS}.000000\0"),
    ("MINUS_DBL_MAX", -DBL_MAX, f"MINUS_DBL_MAX\0d-{DIGITS}.000000\0"),
    ("FALSE", False, "FALSE\0bfalse\0"),
    ("TRUE", True, "TRUE\0btrue\0"),
    ("TIMESTAMP", datetime.fromtimestamp(1692370785, UTC), "TIMESTAMP\0t2023-08-18T14:59:45Z\0"),
]
"""All of the RFC."""


@pytest.mark.parametrize(("key", "value", "encoding"), VECTORS)
def test_the_vectors_of_the_rfc_are_met(key: str, value: Any, encoding: str) -> None:
    assert signed_request.encode_pairs({key: value}) == encoding.encode()
    found = signed_request.decode_pairs(encoding.encode())[key]
    assert type(found) is type(value)
    assert found == (0.0 if key == "DBL_MIN" else value)


def test_pairs_follow_each_other_in_their_order() -> None:
    everything = "".join(encoding for _, _, encoding in VECTORS).encode()
    pairs: dict[str, Any] = {key: value for key, value, _ in VECTORS}
    assert signed_request.encode_pairs(pairs) == everything
    assert list(signed_request.decode_pairs(everything)) == list(pairs)


def test_a_time_is_written_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert signed_request.encode_pairs({"t": datetime(2023, 8, 18, 16, 59, 45, 9, east)}) == (
        b"t\0t2023-08-18T14:59:45Z\0"
    )


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ({"": 1}, "empty key"),
        ({"a\0b": 1}, "holds a NUL"),
        ({"a": "b\0c"}, "'a' holds a NUL"),
        ({"a": 2**63}, "does not fit 64 bits"),
        ({"a": -(2**63) - 1}, "does not fit 64 bits"),
        ({"a": datetime(2023, 8, 18)}, "has no zone"),  # noqa: DTZ001 - that is the mistake
        ({"a": "\ud800"}, "cannot be written"),
    ],
)
def test_pairs_that_could_not_be_read_back_are_not_written(
    pairs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadFormat, match=problem):
        signed_request.encode_pairs(pairs)


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("i-0", "not an integer"),
        ("i9223372036854775808", "not an integer"),
        ("i-9223372036854775809", "not an integer"),
        ("i1.0", "not an integer"),
        ("d3", "not a double"),
        ("d3.0", "not a double"),
        ("d1e5", "not a double"),
        ("dInfinity", "not a double"),
        ("bTrue", "not true or false"),
        ("b1", "not true or false"),
        ("t2023-08-18 14:59:45Z", "not a time"),
        ("t2023-08-18T14:59:45", "not a time"),
        ("t2023-13-18T14:59:45Z", "not a time"),
        ("", "a type other than"),
        ("42", "a type other than"),
    ],
)
def test_a_value_is_of_its_type_and_of_no_other(typed: str, problem: str) -> None:
    with pytest.raises(BadFormat, match=f"key at byte 4 .*{problem}"):
        signed_request.decode_pairs(f"key\0{typed}\0".encode())


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
values = (
    texts
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.integers(-(2**40), 2**40).map(lambda number: number / 64)
    | st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(microsecond=0))
)


@given(st.dictionaries(texts.filter(bool), values, max_size=5))
def test_pairs_read_back_each_in_its_type(pairs: dict[str, Any]) -> None:
    found = signed_request.decode_pairs(signed_request.encode_pairs(pairs))
    assert list(found.items()) == list(pairs.items())
    assert [type(value) for value in found.values()] == [type(value) for value in pairs.values()]


@given(st.binary(max_size=24) | st.text("a\0ib1-", max_size=16).map(str.encode))
def test_every_text_is_read_or_refused_and_what_is_read_is_written_alike(data: bytes) -> None:
    try:
        found = signed_request.decode_pairs(data)
    except BadFormat:
        return
    assert signed_request.encode_pairs(found) == data
