"""Every component a process of its own, over HTTPS, with its own role and no more."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.extent import chosen
from tests.journeys.conftest import Cluster, running, wait_for
from tests.journeys.test_survival import results, start
from warren.base.objects import Change, Key, Kind, Remove
from warren.daemons import users
from warren.dws import kinds
from warren.kube import http, kubeconfig
from warren.kube.client import Client, Refused

PARTS = ("apiserver", "controllers", "instance", "conductor", "copy-offload")
SECRET = Kind("", "v1", "Secret", "secrets")


@pytest.fixture
def separate(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose parts have a process each."""
    yield from running(Cluster(tmp_path, "--separate"))


def parts(cluster: Cluster) -> dict[str, int]:
    """Return the processes of the parts by their names."""
    found = {}
    for process in cluster.processes():
        with suppress(OSError):  # it may just have ended
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"warren.daemons.part" in words:
                found[words[words.index(b"warren.daemons.part") + 2].decode()] = process
    return found


def test_a_job_lives_its_life_where_every_component_has_a_process_and_a_role(
    separate: Cluster,
) -> None:
    assert sorted(parts(separate)) == sorted(PARTS)
    job = start(separate, seconds=0)
    done = separate("job", "attach", job)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "input\ninput\n"
    separate.wait_clean()
    assert results(separate) == 2
    for log in separate.state.logs.glob("*.log"):
        assert "forbidden" not in log.read_text(), log

    asyncio.run(_nobody_may_more_than_its_role(separate))


async def _nobody_may_more_than_its_role(cluster: Cluster) -> None:
    default = Key("default", "x")
    await _refused(
        cluster,
        users.CONDUCTOR,
        lambda client: client.list(SECRET),
        lambda client: client.delete(Remove(kind=kinds.STORAGE, key=default)),
        lambda client: client.create(kinds.SERVERS, {"metadata": {"name": "x"}}),
        lambda client: client.patch(Change(kind=kinds.NNF_NODE_STORAGE, key=default, patch={})),
        lambda client: client.list(kinds.NNF_NODE_BLOCK_STORAGE),
    )
    await _refused(
        cluster,
        users.INSTANCE,
        lambda client: client.list(kinds.WORKFLOW),
        lambda client: client.delete(Remove(kind=kinds.DIRECTIVE_RULE, key=default)),
    )
    await _refused(
        cluster,
        users.CONTROLLERS,
        lambda client: client.list(SECRET),
        lambda client: client.delete(Remove(kind=kinds.WORKFLOW, key=default)),
    )
    await _refused(
        cluster,
        users.OFFLOAD,
        lambda client: client.list(SECRET),
        lambda client: client.list(kinds.WORKFLOW, "default"),
        lambda client: client.get(SECRET, Key("nnf-system", "x")),
        lambda client: client.patch(Change(kind=kinds.WORKFLOW, key=default, patch={})),
        lambda client: client.patch(Change(kind=kinds.SYSTEM_CONFIGURATION, key=default, patch={})),
    )
    elsewhere = Key("rabbit-1", "x")
    await _refused(
        cluster,
        users.node_user("rabbit-0"),
        lambda client: client.list(kinds.CLIENT_MOUNT, "rabbit-1"),
        lambda client: client.list(kinds.CLIENT_MOUNT),
        lambda client: client.list(kinds.WORKFLOW, "default"),
        lambda client: client.patch(Change(kind=kinds.CLIENT_MOUNT, key=elsewhere, patch={})),
    )


async def _refused(
    cluster: Cluster, user: str, *actions: Callable[[Client], Awaitable[object]]
) -> None:
    """Assert that the API forbids a user every one of these actions."""
    async with http.connect(kubeconfig.load(cluster.state.user_kubeconfig(user))) as client:
        for action in actions:
            with pytest.raises(Refused, match=f'User "{user}" cannot'):
                await action(client)


@pytest.mark.parametrize("name", chosen(PARTS, usual=2))
def test_a_part_that_is_killed_comes_back_and_the_job_ends_well(
    separate: Cluster, name: str
) -> None:
    job = start(separate, seconds=2)
    separate.wait_event(job, "start")
    before = parts(separate)[name]
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: parts(separate).get(name, before) != before)

    separate.wait_event(job, "clean")
    separate.wait_clean()
    assert separate.job(job)["success"]
    assert results(separate) == 2


def test_without_the_controllers_a_job_waits_and_goes_on_when_they_are_back(
    separate: Cluster,
) -> None:
    controllers = parts(separate)["controllers"]
    os.kill(controllers, signal.SIGSTOP)
    job = start(separate, seconds=0)
    separate.wait_event(job, "dependency-add")
    assert "dependency-remove" not in separate.events(job)
    os.kill(controllers, signal.SIGCONT)

    assert separate("job", "attach", job).returncode == 0
    separate.wait_clean()
