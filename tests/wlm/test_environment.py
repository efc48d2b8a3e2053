"""The shell plugin that gives tasks their DW_ variables."""

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness import virtual
from warren.instance.shell.options import CannotRun
from warren.rpc.message import RpcError
from warren.wlm.embedded.environment import DwsEnvironment

EVENT = '{"timestamp":1.0,"name":"dws_environment","context":{"variables":{"DW_JOB_a":"/mnt/a"}}}\n'
OTHER = '{"timestamp":1.0,"name":"start"}\n'


class OnlyNode:
    """A `Node` where all storage is mounted."""

    def local_path(self, path: str) -> str:
        return f"/node{path}"

    def is_mounted(self, path: str) -> bool:
        return True


class Instance:
    """Answers watches of the eventlog, one after the other: with entries, or an error."""

    def __init__(self, *watches: list[str | RpcError], tokens: Sequence[Any] = ()) -> None:
        """`tokens` are the answers about the job's token, in their order."""
        self.watches = list(watches)
        self.tokens = list(tokens)

    async def rpc(self, topic: str, payload: Any) -> Any:
        assert (topic, payload) == ("workflow.token", {"id": 1})
        answer = self.tokens.pop(0)
        if isinstance(answer, RpcError):
            raise answer
        return {"token": answer}

    async def stream(self, topic: str, payload: Any) -> AsyncIterator[dict[str, str]]:
        assert topic == "job-info.eventlog-watch"
        for answer in self.watches.pop(0):
            await asyncio.sleep(0)
            if isinstance(answer, RpcError):
                raise answer
            yield {"event": answer}


JOBDW = "#DW jobdw type=xfs capacity=1GiB name=a"
CONTAINER = "#DW container name=b profile=c"


def environment(
    *watches: list[str | RpcError],
    node: OnlyNode | None = None,
    dw: str = JOBDW,
    tokens: Sequence[Any] = (),
) -> dict[str, str]:
    jobspec = {"attributes": {"system": {"dw": dw}}}
    info = SimpleNamespace(job=1, jobspec=jobspec, host="n0")
    instance = Instance(*watches, tokens=tokens)
    shell: Any = SimpleNamespace(info=info, handle=instance, environment={})
    virtual.run(DwsEnvironment(node or OnlyNode()).init(shell))
    assert shell.handle.watches == []
    assert shell.handle.tokens == []
    return dict(shell.environment)


def test_tasks_learn_of_their_storage_by_the_nodes_own_path() -> None:
    """Statement 000.7: the shell plugin reads the event and sets the variables."""
    assert environment([OTHER, EVENT]) == {"DW_JOB_a": "/node/mnt/a"}


@pytest.mark.parametrize("errnum", [errno.ECONNRESET, errno.ENOSYS, errno.EAGAIN])
def test_a_shell_that_starts_while_the_instance_is_restarted_asks_again(errnum: int) -> None:
    lost = RpcError(errnum, "the connection was lost")

    assert environment([OTHER, lost], [lost], [OTHER, EVENT]) == {"DW_JOB_a": "/node/mnt/a"}


def test_other_errors_end_the_shell() -> None:
    with pytest.raises(RpcError, match="no such job"):
        environment([RpcError(errno.ENOENT, "no such job")])


def test_a_job_whose_log_ends_without_the_event_cannot_run() -> None:
    with pytest.raises(CannotRun, match="never made ready"):
        environment([OTHER])


class WithoutStorage(OnlyNode):
    """A `Node` that has mounted nothing."""

    def is_mounted(self, path: str) -> bool:
        return False


LOST = (
    '{"timestamp":1.0,"name":"exception","context":'
    '{"type":"dws-node-failure","severity":1,"note":"n[0-3]"}}\n'
)


def test_a_node_that_the_job_has_lost_waits_for_no_storage() -> None:
    assert environment([LOST, EVENT], node=WithoutStorage()) == {"DW_JOB_a": "/node/mnt/a"}
    with pytest.raises(CannotRun, match="not mounted"):
        environment([EVENT], node=WithoutStorage())


WITH = f"{JOBDW} requires=user-container-auth\n{CONTAINER}"


def test_a_job_that_asked_for_it_has_the_token_of_its_containers() -> None:
    found = environment([EVENT], dw=WITH, tokens=["a.b.c"])
    assert found == {"DW_JOB_a": "/node/mnt/a", "DW_WORKFLOW_TOKEN": "a.b.c"}
    for without in (f"{JOBDW} requires=user-container-auth", f"{JOBDW}\n{CONTAINER}"):
        assert "DW_WORKFLOW_TOKEN" not in environment([EVENT], dw=without)


def test_a_token_is_asked_for_again_while_the_instance_or_the_cluster_is_restarted() -> None:
    later = [RpcError(errno.ECONNRESET), RpcError(errno.EAGAIN), "a.b.c"]
    assert environment([EVENT], dw=WITH, tokens=later)["DW_WORKFLOW_TOKEN"] == "a.b.c"


def test_a_job_whose_workflow_has_no_token_runs_without_one() -> None:
    none = [RpcError(errno.ENOENT, "the job's Workflow has no token")]
    assert "DW_WORKFLOW_TOKEN" not in environment([EVENT], dw=WITH, tokens=none)


def test_a_job_whose_token_cannot_be_read_cannot_run() -> None:
    with pytest.raises(CannotRun, match=r"no DW_WORKFLOW_TOKEN for the job: it is not yours"):
        environment([EVENT], dw=WITH, tokens=[RpcError(errno.EPERM, "it is not yours")])


def test_a_token_that_the_cluster_cannot_tell_is_not_asked_for_for_ever() -> None:
    later = [RpcError(errno.EAGAIN, "the API server does not answer")] * 100
    with pytest.raises(CannotRun, match=r"no DW_WORKFLOW_TOKEN .*: the API server does not answer"):
        environment([EVENT], dw=WITH, tokens=later)


def test_the_time_in_which_the_instance_is_away_does_not_count() -> None:
    away = [RpcError(errno.ECONNRESET)] * 100
    found = environment([EVENT], dw=WITH, tokens=[*away, RpcError(errno.EAGAIN), "a.b.c"])
    assert found["DW_WORKFLOW_TOKEN"] == "a.b.c"
