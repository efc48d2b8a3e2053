"""Jobs that are executed for show."""

import asyncio
import signal
from typing import Any

import orjson
import pytest

from tests.instance.instance import Instance, machine
from tests.instance.lives import PLAIN
from tests.instance.parts import GUEST, OWNER, virtually
from warren.instance.exec import testexec
from warren.lifecycle.states import Result
from warren.rfc import jobspec, signed_request
from warren.rfc.fluid import JobId

EXECUTION = ["init", "starting", "recoverable", "shell-exit", "complete", "done"]


def spec(**test: Any) -> dict[str, Any]:
    return jobspec.make(command=["app"], nodes=2, attributes={"exec": {"test": test}})


async def submit(instance: Instance, **test: Any) -> JobId:
    token = signed_request.wrap(orjson.dumps(spec(**test)), OWNER)
    return JobId((await instance.bus.handle().rpc("job-ingest.submit", {"J": token}))["id"])


@virtually
async def test_a_job_takes_its_time_and_has_its_status_and_starts_no_shell() -> None:
    async with machine() as m, m.instance() as instance:
        job = await submit(instance, run_duration="2.5s", wait_status=3 << 8)
        await instance.until(job, "start")
        assert dict(await m.launcher.started_jobs()) == {}
        await instance.until(job)

        assert instance.names(job) == PLAIN
        assert instance.names(job, "guest.exec.eventlog") == EXECUTION
        assert instance.took(job) == pytest.approx(2.5, abs=0.1)
        assert instance.job(job).wait_status == 3 << 8
        await instance.assert_nothing_left()


@virtually
async def test_a_signal_ends_it_with_that_signal() -> None:
    async with machine() as m, m.instance() as instance:
        job = await submit(instance, run_duration="100s")
        await instance.until(job, "start")
        await asyncio.sleep(1)
        await instance.cancel(job)
        await instance.until(job)

        assert instance.job(job).wait_status == signal.SIGTERM
        assert instance.job(job).result is Result.CANCELED
        assert instance.took(job) == pytest.approx(1, abs=0.1)


@virtually
async def test_it_goes_on_where_it_was_in_the_next_life() -> None:
    async with machine() as m:
        async with m.instance() as instance:
            job = await submit(instance, run_duration="30s")
            began = await instance.until(job, "start")
        await asyncio.sleep(10)
        async with m.instance() as instance:
            assert await instance.until(job, "finish") - began == pytest.approx(30, abs=0.1)

            await instance.until(job)
            assert instance.names(job) == PLAIN
            assert instance.names(job, "guest.exec.eventlog").count("reattach") == 1


@pytest.mark.parametrize(
    ("when", "names"),
    [
        ("init", [*PLAIN[:5], "exception", "release", "free", "clean"]),
        ("run", [*PLAIN[:6], "exception", *PLAIN[6:]]),
    ],
)
@virtually
async def test_an_exception_comes_when_it_is_wanted(when: str, names: list[str]) -> None:
    async with machine() as m, m.instance() as instance:
        job = await submit(instance, run_duration="30s", mock_exception=when)
        await instance.until(job)

        assert instance.names(job) == names
        words = {"init": "initialization", "run": "run"}[when]
        assert instance.failures(job) == [("exec", f"mock {words} exception generated")]
        assert instance.job(job).result is Result.FAILED
        await instance.assert_nothing_left()


@virtually
async def test_guests_may_not_have_their_jobs_executed_for_show() -> None:
    async with machine() as m, m.instance() as instance:
        job = JobId(1 << 24)
        submitted = {"userid": GUEST, "urgency": 16, "flags": 0, "version": 1}
        await instance.manager.submit(job, submitted, spec(run_duration="1s"), [])
        await instance.until(job)

        note = "attributes.system.exec.test is for the instance's owner only."
        assert instance.failures(job) == [("exec", note)]
        assert "start" not in instance.names(job)


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"run_duration": "soon"}, "exec.test.run_duration: 'soon' is not a duration"),
        ({"wait_status": 65536}, "exec.test.wait_status is 65536: make it a number"),
        ({"wait_status": "no"}, "exec.test.wait_status is 'no'"),
        ({"mock_exception": "end"}, "exec.test.mock_exception is 'end': make it init or run."),
        ({"mock_exception": []}, "exec.test.mock_exception is []: make it init or run."),
        ({"override": 1}, "exec.test.override is not offered here: use run_duration,"),
    ],
)
@virtually
async def test_what_cannot_be_shown_is_said(test: dict[str, Any], words: str) -> None:
    async with machine() as m, m.instance() as instance:
        job = await submit(instance, **test)
        await instance.until(job)

        ((type_, note),) = instance.failures(job)
        assert type_ == "exec"
        assert words in note
        assert "start" not in instance.names(job)


def test_a_job_that_does_not_say_how_long_takes_as_long_as_it_may_or_no_time() -> None:
    limited = spec()
    limited["attributes"]["system"]["duration"] = 60.0

    assert testexec.read_mock_run(limited, by_owner=True) == testexec.MockRun(seconds=60.0)
    found = testexec.read_mock_run(spec(), by_owner=True)
    assert found is not None
    assert found.seconds < 0.001


def test_a_job_that_wants_nothing_shown_is_run() -> None:
    assert testexec.read_mock_run(jobspec.make(command=["app"], tasks=1), by_owner=False) is None
