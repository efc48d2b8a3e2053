"""Where jobs come in: what is refused, and what is kept of what is not (flux-rfc-spec 12)."""

import base64
import errno
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tests.instance.lives import Life, alive, spec
from tests.instance.parts import GUEST, OWNER, refused, settle, virtually
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.journal import MemoryJournal
from warren.rfc import signed_request
from warren.rpc.message import RpcError

TOKEN = signed_request.wrap(orjson.dumps(spec()), OWNER)


async def ask(life: Life, request: Mapping[str, Any], userid: int = OWNER) -> int:
    """The errnum that a request is refused with, when it leaves nothing behind."""
    answer = await refused(life.bus.handle(userid).rpc("job-ingest.submit", request))
    await settle()
    assert list(life.manager.jobs()) == []
    assert life.kvs.names(".") == []
    return answer


def token(payload: bytes, userid: int = OWNER) -> str:
    return signed_request.wrap(payload, userid)


# Refusals


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"J": None},
        {"J": 5},
        {"J": TOKEN, "urgency": "high"},
        {"J": TOKEN, "urgency": None},
        {"J": TOKEN, "flags": "debug"},
        {"J": TOKEN, "flags": 1},
        {"J": TOKEN, "flags": 8},
        {"J": TOKEN, "flags": 64 | 2},
    ],
)
@virtually
async def test_what_is_no_submission_is_refused(request_: dict[str, Any]) -> None:
    async with alive() as life:
        assert await ask(life, request_) == errno.EPROTO


@pytest.mark.parametrize("urgency", [-1, 32, 1000])
@virtually
async def test_an_urgency_that_is_none_is_refused(urgency: int) -> None:
    async with alive() as life:
        assert await ask(life, {"J": TOKEN, "urgency": urgency}) == errno.EINVAL


@virtually
async def test_a_guest_is_not_more_urgent_than_others() -> None:
    async with alive() as life:
        request = {"J": token(orjson.dumps(spec()), GUEST), "urgency": 17}

        assert await ask(life, request, GUEST) == errno.EINVAL


@pytest.mark.parametrize(
    "signed",
    [
        "",
        "rubbish",
        "a.b",
        "a.b.none",
        "....",
        TOKEN.removesuffix("none") + "munge",
        TOKEN + ".none",
        ".".join([base64.b64encode(b"version\0i1\0").decode(), *TOKEN.split(".")[1:]]),
        "ä.ö.none",
    ],
)
@virtually
async def test_what_is_not_signed_is_refused(signed: str) -> None:
    async with alive() as life:
        assert await ask(life, {"J": signed}) == errno.EINVAL


@pytest.mark.parametrize(("asks", "signs"), [(OWNER, GUEST), (GUEST, OWNER)])
@virtually
async def test_nobody_submits_what_somebody_else_has_signed(asks: int, signs: int) -> None:
    async with alive() as life:
        request = {"J": token(orjson.dumps(spec()), signs)}

        assert await ask(life, request, asks) == errno.EPERM


@virtually
async def test_a_signature_that_proves_nothing_is_the_owners_privilege() -> None:
    async with alive() as life:
        with pytest.raises(RpcError, match="only instance owner can use sign-type=none"):
            await life.submit(GUEST)
        assert await ask(life, {"J": token(orjson.dumps(spec()), GUEST)}, GUEST) == errno.EPERM


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[]", b"5", b"null", b'{"version": 1}'])
@virtually
async def test_what_is_no_jobspec_is_refused(payload: bytes) -> None:
    async with alive() as life:
        assert await ask(life, {"J": token(payload)}) == errno.EINVAL


@virtually
async def test_a_refusal_says_where_the_jobspec_is_wrong() -> None:
    async with alive() as life:
        with pytest.raises(RpcError, match=r"attributes\.system\.duration is not a number"):
            await life.submit_spec({**spec(), "attributes": {"system": {}}})


@virtually
async def test_a_validator_refuses_with_its_own_words() -> None:
    def never(jobspec: Mapping[str, Any]) -> None:
        raise UserMistake(f"no {jobspec['tasks'][0]['command'][0]} today")

    async with alive(validators=[never]) as life:
        with pytest.raises(RpcError, match=r"^no app today$"):
            await life.submit()
        assert await ask(life, {"J": TOKEN}) == errno.EINVAL


@virtually
async def test_a_mistake_is_told_in_the_words_that_it_is_to_be_shown_in() -> None:
    class Shown(UserMistake):
        shown = "here:\n  ^"

    def never(jobspec: Mapping[str, Any]) -> None:
        raise Shown("somewhere")

    async with alive(validators=[never]) as life:
        with pytest.raises(RpcError) as caught:
            await life.submit()
        assert str(caught.value) == "here:\n  ^"


@virtually
async def test_every_validator_is_asked() -> None:
    asked: list[str] = []

    def second(jobspec: Mapping[str, Any]) -> None:
        asked.append("second")
        raise UserMistake("no")

    async with alive(validators=[lambda jobspec: asked.append("first"), second]) as life:
        assert await ask(life, {"J": TOKEN}) == errno.EINVAL
    assert asked == ["first", "second"]


# What is kept


@virtually
async def test_the_environment_is_kept_in_the_signed_request_alone() -> None:
    async with alive() as life:
        asked = spec(environment={"SECRET": "1"}, cwd="/somewhere")
        job = await life.submit_spec(asked)

        kept = orjson.loads(life.kvs.lookup(keys.of(job, "jobspec")))
        assert "environment" not in kept["attributes"]["system"]
        assert kept["attributes"]["system"]["cwd"] == "/somewhere"
        signed = signed_request.unwrap(life.kvs.lookup(keys.of(job, "J")).decode())
        assert orjson.loads(signed.payload) == asked
        assert b"SECRET" not in life.kvs.lookup(keys.of(job, "eventlog"))


@virtually
async def test_a_submit_event_says_who_and_how_urgently() -> None:
    async with alive() as life:
        job = await life.submit_spec(spec(), urgency=31, flags=4)

        context = {"userid": OWNER, "urgency": 31, "flags": 4, "version": 1}
        assert life.log(job)[0].context == context
        assert life.job(job).priority == 31


@virtually
async def test_the_usual_urgency_is_sixteen() -> None:
    async with alive() as life:
        job = await life.submit()

        assert life.log(job)[0].context["urgency"] == 16


@virtually
async def test_ids_ascend_even_within_a_millisecond() -> None:
    async with alive() as life:
        jobs = [await life.submit() for _ in range(50)]

        assert jobs == sorted(set(jobs))


@virtually
async def test_a_refused_job_does_not_come_back_with_a_restart() -> None:
    journal = MemoryJournal()
    async with alive(journal) as life:
        assert await ask(life, {"J": token(b"{}")}) == errno.EINVAL
    async with alive(journal) as life:
        assert list(life.manager.jobs()) == []
    assert journal.records == []
