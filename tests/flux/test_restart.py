"""Jobs whose job manager is restarted: what it forgets, their logs tell."""

import asyncio
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from tests.flux.broker import Broker
from tests.flux.test_jobtap import OWNER, Real, ask
from tests.wlm.plugin_cases import DIRECTIVE, VARIABLES, WHOLE, request, told
from warren.rfc import jobspec, signed_request

_AROUND = (
    *["sched-fluxion-resource", "sched-fluxion-feasibility", "sched-fluxion-qmanager"],
    *["sched-simple", "job-exec", "job-list", "job-ingest"],
)
"""What stands on the job manager, in the order in which it is loaded."""


def restart(broker: Broker, plugin: str) -> None:
    """Restart the job manager, and with it what stands on it."""
    configuration = {
        **tomllib.loads((broker.home / "flux.toml").read_text()),
        "job-manager": {"plugins": [{"load": plugin, "conf": {"retry-interval": 0.1}}]},
    }
    listed = {each["name"] for each in broker.rpc("module.list", {})["mods"]}
    stopped = [each for each in _AROUND if each in listed]
    new = broker.home / "new.json"
    new.write_bytes(orjson.dumps(configuration))
    steps = [f"flux config load <{new}"]
    # Some end by themselves when the job manager is gone.
    steps += [f"flux module remove -f {name}" for name in ["job-manager", *stopped]]
    steps += [f"flux module load {name}" for name in ["job-manager", *stopped]]
    done = broker.do("run", command=["sh", "-exc", "\n".join(steps)])
    assert done["status"] == 0, done["said"]


def version(broker: Broker) -> tuple[int, ...]:
    told = broker.rpc("attr.get", {"name": "version"})["value"]
    return tuple(int(each) for each in told.split("-")[0].split("."))


def go_on_where_they_were(broker: Broker, *names: str) -> None:
    jobs = {name: Real(broker) for name in names}
    first = jobs[names[0]]
    first.begin()
    try:
        for name, job in jobs.items():
            test = {"run_duration": "1h" if name == "running" else "0.01s", "reattach_finish": 1}
            submit(job, {"dw": DIRECTIVE, "exec": {"test": test}})
            asyncio.run(job.received("create"))
            if name == "held":
                continue
            assert ask(job, "resource-update", exclude=None) is None
            asyncio.run(job.received("setup"))
            if name == "starting":
                continue
            assert ask(job, "prolog-remove", **VARIABLES) is None
            asyncio.run(job.until("start"))
            if name == "ending":
                asyncio.run(job.received("post_run"))

        restart(broker, str(broker.plugins / "dws-jobtap.so"))

        for job in jobs.values():
            assert ask(job, "resource-update", exclude=None) is None
            asyncio.run(job.received("setup"))
            assert ask(job, "prolog-remove", **VARIABLES) is None
            asyncio.run(job.received("post_run"))
            assert ask(job, "epilog-remove") is None
            asyncio.run(job.until("clean"))
            log = asyncio.run(job.log())
            assert [said for each in log if (said := told(*each))] == list(WHOLE)
            asked = dict.fromkeys(request(*each) for each in asyncio.run(job.requests()))
            assert list(asked) == ["create", "setup", "post_run ran"]
    finally:
        first.end()


def test_jobs_whose_tasks_do_not_run_go_on_where_they_were(broker: Broker) -> None:
    go_on_where_they_were(broker, "held", "ending")


def test_jobs_that_start_or_run_go_on_where_they_were(broker: Broker) -> None:
    if version(broker) < (0, 88):
        pytest.skip("flux-core before 0.88 takes up no job that runs when job-exec is loaded anew")
    go_on_where_they_were(broker, "starting", "running")


def test_a_job_whose_tasks_are_lost_ends_after_its_storage(broker: Broker) -> None:
    """Flux posts no `finish` for them."""
    job = Real(broker)
    job.begin()
    submit(job, {"dw": DIRECTIVE}, ["sleep", "1000"])
    asyncio.run(job.received("create"))
    assert ask(job, "resource-update", exclude=None) is None
    asyncio.run(job.received("setup"))
    assert ask(job, "prolog-remove", **VARIABLES) is None
    asyncio.run(job.until("start"))

    restart(broker, str(broker.plugins / "dws-jobtap.so"))

    asyncio.run(job.received("post_run ran"))
    assert ask(job, "epilog-remove") is None
    asyncio.run(job.until("clean"))
    names = [name for name, _ in asyncio.run(job.log())]
    assert "finish" not in names
    assert names.index("release") < names.index("epilog-start") < names.index("free")
    job.end()


def submit(job: Real, system: Mapping[str, Any], command: Sequence[str] = ("app",)) -> None:
    job.spec = jobspec.make(list(command), tasks=1, attributes=system)
    token = signed_request.wrap(orjson.dumps(job.spec), OWNER)
    wanted = {"J": token, "urgency": 16, "flags": 0}
    job.job = job.broker.do("submit", request=wanted)["id"]
