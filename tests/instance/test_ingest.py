"""Where jobs come in: what is refused, and what is kept of the rest (flux-rfc-spec section 12)."""

import base64
import errno
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instance.lives import Life, alive, spec
from tests.instance.parts import GUEST, OWNER, refused, settle, virtually
from warren.base.errors import UserMistake
from warren.instance import config, keys, servicetables
from warren.instance.config import Config
from warren.journal import MemoryJournal
from warren.rfc import jobspec, signed_request
from warren.rfc.fluid import JobId
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

OPEN = config.parse("access.allow-guest-user = true")
SMALL = config.parse("ingest.max-payload = 1024")
SPEC = orjson.dumps(spec())
ROOT = 0


def proven(userid: int, payload: bytes = SPEC) -> str:
    """A request that is signed by munge. The signature is not looked at here."""
    return f"{signed_request.signed_part(payload, userid, 'munge')}.MUNGE:AAAA:"


@dataclass(frozen=True)
class Case:
    """A request that is refused."""

    request: Mapping[str, Any]
    errnum: int
    words: str
    by: int = OWNER
    config: Config = field(default_factory=Config)


UNUSUAL = {"flags": 4, "urgency": 17}

REFUSALS = {
    "nothing": Case({}, errno.EPROTO, "takes J, urgency and flags"),
    "J null": Case({"J": None}, errno.EPROTO, "Expected `str`, got `null`"),
    "J a number": Case({"J": 5}, errno.EPROTO, "takes J, urgency and flags"),
    "urgency a word": Case({"J": TOKEN, "urgency": "high"}, errno.EPROTO, "$.urgency"),
    "urgency null": Case({"J": TOKEN, "urgency": None}, errno.EPROTO, "$.urgency"),
    "urgency true": Case({"J": TOKEN, "urgency": True}, errno.EPROTO, "$.urgency"),
    "flags a word": Case({"J": TOKEN, "flags": "debug"}, errno.EPROTO, "$.flags"),
    "flags unknown": Case({"J": TOKEN, "flags": 16 | 2}, errno.EPROTO, "flags 0x10"),
    "flags of clients": Case({"J": TOKEN, "flags": 1}, errno.EPROTO, "flags 0x1"),
    "flags before urgency": Case({"J": "", "flags": 64, "urgency": 99}, errno.EPROTO, "0x40"),
    "a guest without validation": Case(
        {"J": proven(GUEST), "flags": 8}, errno.EPERM, "only the instance owner", GUEST, OPEN
    ),
    "no urgency below": Case({"J": TOKEN, "urgency": -1}, errno.EINVAL, "from 0 to 31"),
    "no urgency above": Case({"J": TOKEN, "urgency": 32}, errno.EINVAL, "from 0 to 31"),
    "an urgent guest": Case(
        {"J": proven(GUEST), **UNUSUAL}, errno.EINVAL, "urgency over 16", GUEST, OPEN
    ),
    "a guest that waits": Case(
        {"J": proven(GUEST), "flags": 4}, errno.EINVAL, "waitable", GUEST, OPEN
    ),
    "too long": Case({"J": "A" * 1025}, errno.EFBIG, "max-payload 1024", OWNER, SMALL),
    "urgency before size": Case(
        {"J": "A" * 1025, "urgency": 32}, errno.EINVAL, "from 0 to 31", OWNER, SMALL
    ),
    "somebody else's": Case(
        {"J": TOKEN}, errno.EPERM, f"signer={OWNER} != requestor={GUEST}", GUEST, OPEN
    ),
    "a guest's, by the owner": Case(
        {"J": proven(GUEST)}, errno.EPERM, f"signer={GUEST} != requestor={OWNER}"
    ),
    "a guest that proves nothing": Case(
        {"J": signed_request.wrap(SPEC, GUEST)}, errno.EPERM, "sign-type=none", GUEST, OPEN
    ),
    "a guest where there are none": Case(
        {"J": proven(GUEST)}, errno.EPERM, "access.allow-guest-user", GUEST
    ),
    "root": Case({"J": proven(ROOT)}, errno.EPERM, "root", ROOT, OPEN),
    "a guest before its JSON": Case(
        {"J": proven(GUEST, b"{")}, errno.EPERM, "access.allow-guest-user", GUEST
    ),
    "a guest of many values": Case(
        {"J": proven(GUEST, b"[" + b"[]," * 40_000 + b"[]]")},
        errno.EFBIG,
        "more than 32768 values",
        GUEST,
        OPEN,
    ),
    "no JSON": Case({"J": proven(GUEST, b"{")}, errno.EINVAL, "jobspec: invalid JSON", GUEST, OPEN),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
@virtually
async def test_what_is_refused_is_refused_with_its_errno_and_a_reason(case: Case) -> None:
    async with alive(config=case.config) as life:
        with pytest.raises(RpcError) as caught:
            await life.bus.handle(case.by).rpc("job-ingest.submit", case.request)
        assert case.words in str(caught.value)
        assert await ask(life, case.request, case.by) == case.errnum


@virtually
async def test_a_guest_that_has_signed_submits_where_guests_may() -> None:
    async with alive(config=OPEN) as life:
        request = {"J": proven(GUEST), "urgency": 16, "flags": 2}
        answer = await life.bus.handle(GUEST).rpc("job-ingest.submit", request)

        assert life.job(JobId(answer["id"])).userid == GUEST


@virtually
async def test_root_submits_where_it_counts_as_the_owner() -> None:
    async with alive(config=config.parse("access.allow-root-owner = true")) as life:
        answer = await life.bus.handle(ROOT).rpc("job-ingest.submit", {"J": proven(ROOT)})

        assert life.job(JobId(answer["id"])).userid == ROOT


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


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[]", b"5", b"null", b'{"version": 1}'])
@virtually
async def test_what_is_no_jobspec_is_refused(payload: bytes) -> None:
    """Statement 003.5: ingest validates jobspec before it stores anything."""
    async with alive() as life:
        assert await ask(life, {"J": token(payload)}) == errno.EINVAL


STRAY = {**spec(), "resources": [{"type": "slot", "count": 1, "label": "task", "with": [
    {"type": "core", "count": 1, "labels": "x"}]}]}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({**spec(), "version": 2}, "jobspec: version is not 1"),
        ({**spec(), "attributes": None}, "jobspec: attributes is not an object"),
        (STRAY, r"jobspec: resources\[0\]\.with\[0\]\.labels is not a key that may stand here"),
        (
            spec(attributes={"constraints": {"rank": ["1"]}}),
            r"constraints\.rank is not an operator",
        ),
        (spec(attributes={"dependencies": []}), r"attributes\.system\.dependencies is not a list"),
    ],
)
@virtually
async def test_a_mistake_in_a_jobspec_is_told_with_its_place(wrong: Any, words: str) -> None:
    async with alive() as life:
        with pytest.raises(RpcError, match=words):
            await life.submit_spec(wrong)


@virtually
async def test_what_is_not_to_be_validated_must_still_be_a_jobspec() -> None:
    def never(jobspec: Mapping[str, Any], userid: int) -> None:
        raise UserMistake("no")

    async with alive(validators=[never]) as life:
        job = await life.submit_spec(STRAY, flags=8)

        assert life.log(job)[0].context["flags"] == 8
        with pytest.raises(RpcError, match="tasks does not hold exactly one task"):
            await life.submit_spec({**spec(), "tasks": []}, flags=8)


@virtually
async def test_a_jobspec_may_be_checked_and_is_told_as_it_will_be_scheduled() -> None:
    def judged(jobspec: Mapping[str, Any], userid: int) -> Mapping[str, Any]:
        if userid == GUEST:
            raise UserMistake("no")
        return {**jobspec, "version": 9999}

    letting_in = Config(access=servicetables.AccessTable(allow_guest_user=True))
    async with alive(validators=[judged], config=letting_in) as life:
        check = life.bus.handle(OWNER).rpc
        answer = await check("job-ingest.check", {"jobspec": spec()})
        assert answer["jobspec"]["version"] == 9999
        for payload, words in (
            ({}, "job-ingest.check takes jobspec, urgency and flags"),
            ({"jobspec": STRAY, "urgency": 32}, "urgency is a number from 0 to 31"),
            ({"jobspec": {**spec(), "tasks": []}}, "tasks"),
        ):
            with pytest.raises(RpcError, match=words):
                await check("job-ingest.check", payload)
        guest = life.bus.handle(GUEST).rpc
        with pytest.raises(RpcError, match="no"):
            await guest("job-ingest.check", {"jobspec": spec()})
        assert not [*life.manager.jobs()]


@virtually
async def test_what_cannot_be_proven_here_is_refused_at_once() -> None:
    site = config.parse(
        'access.allow-guest-user = true\nsign.munge.socket-path = "/run/elsewhere/socket"'
    )

    def refusal(userid: int, munge_socket: str | None) -> str:
        return f"no munged listens at {munge_socket} for {userid}"

    async with alive(config=site, guest_refusal=refusal) as life:
        for topic, payload in (
            ("job-ingest.submit", {"J": proven(GUEST)}),
            ("job-ingest.check", {"jobspec": spec()}),
        ):
            with pytest.raises(RpcError, match="at /run/elsewhere/socket for") as caught:
                await life.bus.handle(GUEST).rpc(topic, payload)
            assert caught.value.errnum == errno.EPERM


@virtually
async def test_a_jobspec_that_is_longer_than_requests_are_is_not_checked() -> None:
    async with alive(config=SMALL) as life:
        check = life.bus.handle(OWNER).rpc
        with pytest.raises(RpcError, match=r"over ingest\.max-payload 1024") as caught:
            await check("job-ingest.check", {"jobspec": spec(name="x" * 1024)})
        assert caught.value.errnum == errno.EFBIG


@virtually
async def test_frobnicators_add_to_what_the_queue_has_made_of_a_jobspec() -> None:
    def anywhere(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        assert jobspec.system(spec)["queue"] == "batch"
        return jobspec.update(spec, {"attributes.system.constraints": {"ranks": ["0"]}})

    site = config.parse("[queues.batch]")
    async with alive(config=site, frobnicators=[anywhere]) as life:
        asked = spec()
        job = await life.submit_spec(asked)

        kept = orjson.loads(life.kvs.lookup(keys.job_key(job, "jobspec")))
        assert kept["attributes"]["system"]["constraints"] == {"ranks": ["0"]}
        signed = signed_request.unwrap(life.kvs.lookup(keys.job_key(job, "J")).decode())
        assert orjson.loads(signed.payload) == asked


@virtually
async def test_a_refusal_says_where_the_jobspec_is_wrong() -> None:
    async with alive() as life:
        with pytest.raises(RpcError, match=r"attributes\.system\.duration is not a number"):
            await life.submit_spec({**spec(), "attributes": {"system": {}}})


@virtually
async def test_a_validator_refuses_with_its_own_words() -> None:
    def never(jobspec: Mapping[str, Any], userid: int) -> None:
        raise UserMistake(f"no {jobspec['tasks'][0]['command'][0]} today")

    async with alive(validators=[never]) as life:
        with pytest.raises(RpcError, match=r"^no app today$"):
            await life.submit()
        assert await ask(life, {"J": TOKEN}) == errno.EINVAL


@virtually
async def test_a_mistake_is_told_in_the_words_that_it_is_to_be_shown_in() -> None:
    class Shown(UserMistake):
        text_with_carets = "here:\n  ^"

    def never(jobspec: Mapping[str, Any], userid: int) -> None:
        raise Shown("somewhere")

    async with alive(validators=[never]) as life:
        with pytest.raises(RpcError) as caught:
            await life.submit()
        assert str(caught.value) == "here:\n  ^"


@virtually
async def test_every_validator_is_asked() -> None:
    asked: list[str] = []

    def second(jobspec: Mapping[str, Any], userid: int) -> None:
        asked.append("second")
        raise UserMistake("no")

    async with alive(validators=[lambda jobspec, userid: asked.append("first"), second]) as life:
        assert await ask(life, {"J": TOKEN}) == errno.EINVAL
    assert asked == ["first", "second"]


@virtually
async def test_a_jobspec_that_is_nested_without_end_is_refused() -> None:
    async with alive() as life:
        asked = spec()
        deep: list[Any] = []
        for _ in range(500):
            deep = [deep]
        asked["attributes"]["user"] = {"deep": deep}
        token = signed_request.wrap(json.dumps(asked).encode(), OWNER)
        assert await ask(life, {"J": token}) == errno.EINVAL


# What is kept


@virtually
async def test_the_environment_is_kept_in_the_signed_request_alone() -> None:
    """Statement 003.24: J is kept as it was signed."""
    async with alive() as life:
        asked = spec(environment={"SECRET": "1"}, cwd="/somewhere")
        asked["tasks"][0]["attributes"] = {"environment": {"SECRET": "2"}, "mine": "1"}
        job = await life.submit_spec(asked)

        kept = orjson.loads(life.kvs.lookup(keys.job_key(job, "jobspec")))
        assert "environment" not in kept["attributes"]["system"]
        assert kept["attributes"]["system"]["cwd"] == "/somewhere"
        assert kept["tasks"][0]["attributes"] == {"mine": "1"}
        signed = signed_request.unwrap(life.kvs.lookup(keys.job_key(job, "J")).decode())
        assert orjson.loads(signed.payload) == asked
        assert b"SECRET" not in life.kvs.lookup(keys.job_key(job, "eventlog"))


@virtually
async def test_a_submit_event_says_who_and_how_urgently() -> None:
    """Statement 003.27: ingest logs submit with userid and urgency."""
    async with alive() as life:
        job = await life.submit_spec(spec(), urgency=31, flags=4)

        context = {"userid": OWNER, "urgency": 31, "flags": 4, "version": 1}
        assert life.log(job)[0].context == context
        assert life.job(job).priority == 2**32 - 1


@virtually
async def test_the_usual_urgency_is_sixteen() -> None:
    async with alive() as life:
        job = await life.submit()

        assert life.log(job)[0].context["urgency"] == 16


@virtually
async def test_ids_ascend_even_within_a_millisecond() -> None:
    """Statement 003.14: ingest gives each job a unique number."""
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


# Rubbish

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A jobspec one place of which has another value, or none."""
    made: Any = spec(
        nodes=2, tasks=4, attributes={"queue": "batch", "constraints": {"ranks": ["0"]}}
    )
    place = made
    while True:
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not (isinstance(place[key], dict | list) and place[key]) or draw(st.booleans()):
            break
        place = place[key]
    if draw(st.booleans()):
        del place[key]
    else:
        place[key] = draw(VALUES)
    return made


@settings(deadline=None)
@given(spoilt() | VALUES)
def test_whatever_is_signed_is_refused_or_a_job_that_can_be_listed(payload: Any) -> None:
    @virtually
    async def submit() -> None:
        async with alive(config=config.parse("[queues.batch]\nrequires = ['batch']")) as life:
            with suppress(RpcError):
                await life.submit_spec(payload)
                await settle()
                told = await life.bus.handle().rpc("job-list.list", {})
                assert len(told["jobs"]) == 1

    submit()


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)
SPOILT_TOKENS = st.builds(
    lambda at, other: TOKEN[:at] + other[:2] + TOKEN[at + 1 :], st.integers(0, len(TOKEN)), TEXTS
)


@settings(deadline=None)
@given(TEXTS | SPOILT_TOKENS)
def test_whatever_is_sent_as_a_request_is_answered(token: str) -> None:
    @virtually
    async def submit() -> None:
        async with alive() as life:
            with suppress(RpcError):
                await life.bus.handle().rpc("job-ingest.submit", {"J": token})

    submit()
