"""The shell plugin in jobs of a real Flux."""

import asyncio
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.flux.broker import Broker
from tests.flux.test_jobtap import OWNER, Real, ask
from tests.wlm.plugin_cases import DIRECTIVE
from warren.rfc import jobspec, signed_request


class Shells(Real):
    """A job whose task writes down a variable, with the plugin in its shell."""

    def submit_writing(
        self, path: Path, system: Mapping[str, Any], variable: str = "DW_JOB_a"
    ) -> None:
        rc = path.with_suffix(".lua")
        rc.write_text(f'plugin.load {{ file = "{self.broker.plugins}/dws_environment.so" }}\n')
        attributes = {"shell": {"options": {"userrc": str(rc)}}, **system}
        spec = jobspec.make(
            ["sh", "-c", f'printf "%s" "${variable}" >{path}'], tasks=1, attributes=attributes
        )
        token = signed_request.wrap(orjson.dumps(spec), OWNER)
        request = {"J": token, "urgency": 16, "flags": 0}
        self.job = self.broker.do("submit", request=request)["id"]
        self.spec = spec

    def status(self) -> int:
        """Wait until the job is over, and return its status."""
        asyncio.run(self.until("clean"))
        statuses = [c["status"] for name, c in asyncio.run(self.log()) if name == "finish"]
        return int(statuses[0])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "written"


def test_tasks_learn_of_their_storage(broker: Broker, written: Path) -> None:
    """Statement 000.8: dws_environment.so tells the tasks of a real Flux."""
    job = Shells(broker)
    job.begin()
    job.submit_writing(written, {"dw": DIRECTIVE})
    asyncio.run(job.received("create"))
    assert ask(job, "resource-update", exclude=None) is None
    asyncio.run(job.received("setup"))
    assert ask(job, "prolog-remove", variables={"DW_JOB_a": "/mnt/a %s"}) is None
    asyncio.run(job.received("post_run"))
    assert ask(job, "epilog-remove") is None

    assert job.status() == 0
    assert written.read_text() == "/mnt/a %s"
    job.end()


AUTH = [f"{DIRECTIVE} requires=user-container-auth", "#DW container name=c profile=p"]


def went_through(
    job: Shells, written: Path, dw: Any, inherited: Mapping[str, str] = {}, **variables: str
) -> str:
    """Have the conductor do its part until the job is over; return the token of its tasks."""
    system = {"dw": dw, "environment": dict(inherited)}
    job.submit_writing(written, system, "DW_WORKFLOW_TOKEN")
    asyncio.run(job.received("create"))
    assert ask(job, "resource-update", exclude=None) is None
    asyncio.run(job.received("setup"))
    assert ask(job, "prolog-remove", variables=variables) is None
    asyncio.run(job.received("post_run"))
    assert ask(job, "epilog-remove") is None
    assert job.status() == 0
    return written.read_text()


@pytest.mark.parametrize(
    "dw",
    [
        AUTH,
        "\n".join(AUTH),
        [AUTH[0], "#DW  container name=c profile=p"],
        [AUTH[0], "#DW\tcontainer name=c profile=p"],
        "\n".join(AUTH)
        .replace(" name=c", " \\\n#DW name=c")
        .replace("DW container", "DW \\\n container"),
        f"{DIRECTIVE} requires=copy-offload",
        "a-preset",
    ],
)
def test_tasks_have_the_token_of_the_containers_beside_them(
    broker: Broker, written: Path, dw: Any
) -> None:
    """However the directives say so: the conductor knows."""
    job = Shells(broker)
    job.begin()
    broker.do("answer", answers={"token": {"token": "a.b.c"}})
    # As where a job is submitted by another one.
    inherited = {"DW_WORKFLOW_TOKEN": "of another job"}
    assert went_through(job, written, dw, inherited) == "a.b.c"
    assert ("a.b.c" in str(asyncio.run(job.log()))) is False
    job.end()


def test_a_token_that_is_in_the_event_is_not_asked_for(broker: Broker, written: Path) -> None:
    """flux-coral2's service puts it there."""
    job = Shells(broker)
    job.begin()
    broker.do("answer", answers={"token": {"token": "a.b.c"}})
    assert went_through(job, written, AUTH, DW_WORKFLOW_TOKEN="x.y.z") == "x.y.z"
    assert "token" not in [method for method, _ in asyncio.run(job.requests())]
    job.end()


@pytest.mark.parametrize(("dw", "asked"), [(DIRECTIVE, 0), ("a-preset", 1)])
def test_a_job_without_a_token_begins_without_one(
    broker: Broker, written: Path, dw: str, asked: int
) -> None:
    """Only where its directives are not known here, the conductor is asked."""
    job = Shells(broker)
    job.begin()
    assert went_through(job, written, dw) == ""
    assert [method for method, _ in asyncio.run(job.requests())].count("token") == asked
    job.end()


def test_a_presets_job_begins_though_its_conductor_tells_of_no_token(
    broker: Broker, written: Path
) -> None:
    """Mostly, a preset asks for none."""
    job = Shells(broker)
    job.begin()
    broker.do("answer", answers={"token": {"errnum": errno.EPERM}})
    assert went_through(job, written, "a-preset") == ""
    job.end()


def test_a_service_that_knows_no_tokens_is_not_waited_for(broker: Broker, written: Path) -> None:
    """flux-coral2's has none for most jobs, and no such method."""
    job = Shells(broker)
    job.begin()
    broker.do("know", method="token", known=False)
    assert went_through(job, written, "a-preset") == ""
    broker.do("know", method="token", known=True)
    job.end()


def test_a_conductor_that_ends_while_it_is_asked_for_a_token_is_asked_again(
    broker: Broker, written: Path
) -> None:
    job = Shells(broker)
    job.begin()
    broker.do("answer", answers={"token": {"silent": True}})
    job.submit_writing(written, {"dw": AUTH}, "DW_WORKFLOW_TOKEN")
    asyncio.run(job.received("create"))
    assert ask(job, "resource-update", exclude=None) is None
    asyncio.run(job.received("setup"))
    assert ask(job, "prolog-remove", variables={}) is None
    asyncio.run(job.received("token"))
    broker.do("answer", answers={"token": {"token": "a.b.c"}})
    asyncio.run(job.received("post_run"))
    assert ask(job, "epilog-remove") is None

    assert job.status() == 0
    assert written.read_text() == "a.b.c"
    job.end()


def test_a_job_without_directives_is_left_alone(broker: Broker, written: Path) -> None:
    broker.unload()
    job = Shells(broker)
    job.submit_writing(written, {})
    assert job.status() == 0
    assert written.read_text() == ""


def test_a_job_whose_storage_was_never_made_ready_fails(broker: Broker, written: Path) -> None:
    broker.unload()
    job = Shells(broker)
    job.submit_writing(written, {"dw": DIRECTIVE})
    assert job.status() != 0
    assert not written.exists()
    said = broker.do("run", command=["flux", "job", "attach", str(job.job)])["said"]
    assert "the job's storage was never made ready: no dws_environment event" in said
