"""`warren conductor flux`, with a real broker, and real storage behind it."""

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.flux.site import Site, opened
from tests.journeys.conftest import wait_for
from warren.rfc import fluid
from warren.rfc.eventlog import Event

JOBDW = "#DW jobdw type=xfs capacity=4GiB name=fast"
STORAGE = ("-N2", "-S", f"dw={JOBDW}")

TABLES = f"""
[rabbit.presets]
small = "{JOBDW}"
[rabbit.policy.maximums]
xfs = 10
"""


@pytest.fixture(scope="module", params=[True, False], ids=["Fluxion", "sched-simple"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, plugins: Path
) -> Iterator[Site]:
    if request.param:
        request.getfixturevalue("fluxion")
    root = tmp_path_factory.mktemp("site")
    with opened(root, plugins, fluxion=request.param, tables=TABLES) as found:
        yield found


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event.name == name]


def fatal(events: list[Event]) -> list[tuple[str, str]]:
    """Return the type and the words of each exception that ends a job."""
    found = (event.context for event in named(events, "exception"))
    return [(each["type"], each.get("note", "")) for each in found if each["severity"] == 0]


def test_a_job_has_its_storage_from_before_its_tasks_until_after_them(site: Site) -> None:
    """Statement 000.4: dws-jobtap.so is a C plugin in a real broker."""
    (site.cluster.shared / "input").write_text("words\n")
    copies = f"#DW copy_in source={site.cluster.shared}/input destination=$DW_JOB_fast/"
    done = site.flux("run", "-N2", "-S", f"dw={JOBDW}\n{copies}", "hostname")
    assert done.returncode == 0, done.stderr
    (job,) = site.flux("jobs", "-a", "-n", "-c1", "-o", "{id.f58plain}").stdout.split()
    events = site.over(job)

    names = [event.name for event in events]
    for before, after in (
        ("dependency-add", "jobspec-update"),
        ("jobspec-update", "dependency-remove"),
        ("alloc", "prolog-start"),
        ("dws_environment", "prolog-finish"),
        ("prolog-finish", "start"),
        ("finish", "epilog-finish"),
        ("epilog-finish", "free"),
    ):
        assert names.index(before) < names.index(after)
    (environment,) = named(events, "dws_environment")
    assert environment.context["variables"]["DW_JOB_fast"].startswith(str(site.cluster.state.path))
    assert fatal(events) == []
    assert json.loads(site.info(job, "rabbit_workflow"))["kind"] == "Workflow"
    assert site.info(job, "rabbit_datain_timing") != ""


def test_a_job_without_storage_is_left_alone(site: Site) -> None:
    events = site.over(site.submit("-N1", "true"))
    assert named(events, "dependency-add") == []


def test_a_preset_stands_for_its_directives(site: Site) -> None:
    events = site.over(site.submit("-N1", "-S", "dw=small", "true"))
    assert len(named(events, "dws_environment")) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-S", "dw=smal"], "did you mean 'small'?"),
        (["-S", "dw=#DW jobdw type=xfs name=fast"], "capacity"),
        (["-S", f"dw={JOBDW}", "-S", "dw_failure_tolerance=-1"], "dw_failure_tolerance=-1"),
        (["-S", "dw=#DW jobdw type=xfs capacity=11GiB name=fast"], "have 10 GiB at most"),
    ],
)
def test_what_a_site_does_not_allow_fails_with_the_reason(
    site: Site, arguments: list[str], words: str
) -> None:
    events = site.over(site.submit("-N1", *arguments, "true"))
    ((type_, note),) = fatal(events)
    assert type_ == "dws-create"
    assert words in note


def test_constraints_of_the_job_stay(site: Site) -> None:
    job = site.submit(*STORAGE, "--requires=hosts:compute-[02-03]", "true")
    events = site.over(job)
    (update,) = named(events, "jobspec-update")
    joined = update.context["attributes.system.constraints"]["and"]
    assert {"hostlist": ["compute-[02-03]"]} in joined
    assert fatal(events) == []
    assert json.loads(site.info(job, "R"))["execution"]["nodelist"] == ["compute-[02-03]"]


PHASES = ["dependency-add", "prolog-start", "start", "epilog-start"]
"""The events after which a job is held, has its nodes, runs and ends."""


@pytest.mark.parametrize("phase", PHASES)
def test_a_job_that_is_cancelled_gives_everything_back(site: Site, phase: str) -> None:
    job = site.submit(*STORAGE, "sleep", "0.5" if phase == "epilog-start" else "100")
    site.until(job, phase)
    site.flux("cancel", job)
    events = site.over(job)
    for kind in ("prolog", "epilog"):
        assert len(named(events, f"{kind}-start")) == len(named(events, f"{kind}-finish"))


@pytest.mark.parametrize("phase", PHASES)
def test_a_job_survives_its_conductor(site: Site, phase: str) -> None:
    job = site.submit(*STORAGE, "sleep", "2")
    site.until(job, phase)
    site.leave(signal.SIGKILL)
    site.lead()
    events = site.over(job)
    assert fatal(events) == []
    assert [event.context["status"] for event in named(events, "finish")] == [0]


@pytest.mark.parametrize("phase", PHASES)
def test_a_job_survives_a_reload_of_the_plugin(site: Site, phase: str) -> None:
    job = site.submit(*STORAGE, "sleep", "2")
    site.until(job, phase)
    site.load()
    events = site.over(job)
    assert fatal(events) == []
    assert [event.context["status"] for event in named(events, "epilog-finish")] == [0]


def test_jobs_wait_for_a_conductor(site: Site) -> None:
    site.leave()
    job = site.submit(*STORAGE, "true")
    site.until(job, "dependency-add")
    site.lead()
    assert fatal(site.over(job)) == []


def _has_begun(site: Site, job: str) -> bool:
    return not {"start", "clean"}.isdisjoint(site.names(job))


def test_many_jobs_at_once_get_what_they_need_and_give_it_back(site: Site) -> None:
    """While the plugin is loaded anew, again and again."""
    listed = site.flux(
        "submit", "--cc=1-8", "-N1", "-c1", "-S", f"dw={JOBDW}", "sleep", "0.2"
    ).stdout.split()
    assert len(listed) == 8
    for job in listed[:4]:
        wait_for(partial(_has_begun, site, job))
        site.load()
    for job in listed:
        assert fatal(site.until(job, "clean")) == []
    site.cluster.wait_clean()


def test_a_disabled_rabbit_gets_no_jobs_and_leaves_no_node_drained(site: Site) -> None:
    site.cluster("rabbits", "disable", "rabbit-1")
    wait_for(lambda: "Disabled" in site.cluster("rabbits").stdout)
    job = site.submit("-N4", "-S", f"dw={JOBDW}", "true")  # which takes both
    site.until(job, "depend")
    site.cluster("rabbits", "enable", "rabbit-1")
    events = site.over(job)
    if "scheduling" in json.loads(site.info(job, "R")):
        assert fatal(events) == []
    assert site.rpc("resource.status", {})["drain"] == {}


def test_fluxion_that_is_loaded_anew_hears_which_flash_is_up(site: Site) -> None:
    modules = ["sched-fluxion-resource", "sched-fluxion-feasibility", "sched-fluxion-qmanager"]
    listed = {each["name"] for each in site.rpc("module.list", {})["mods"]}
    if not listed.issuperset(modules):
        pytest.skip("this broker has no Fluxion")
    for name in reversed(modules):
        site.flux("module", "remove", "-f", name)
    for name in modules:
        assert site.flux("module", "load", name).returncode == 0
    assert fatal(site.over(site.submit(*STORAGE, "true"))) == []


def test_the_owner_is_told_where_the_storage_of_a_job_is(site: Site) -> None:
    job = site.submit(*STORAGE, "sleep", "2")
    site.until(job, "start")
    told = site.rpc("dws.storage", {"id": fluid.parse(job)})
    assert "rabbit-" in json.dumps(told)
    assert sorted(site.rpc("dws.status", {})["workflows"]) == [fluid.parse(job)]
    site.over(job)
