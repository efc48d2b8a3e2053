"""The service that tells a job's user the token of the job's containers."""

import asyncio
import base64
import errno
from typing import Any

import pytest

from tests.dws.builders import meta, raw_workflow
from warren.base.errors import WarrenError
from warren.base.objects import Key, Kind, Object
from warren.dws import kinds
from warren.kube.client import Forbidden, NotFound, Unavailable
from warren.rpc.bus import Bus
from warren.rpc.message import RpcError
from warren.wlm.tokens import WorkflowTokens

OWNER, ALICE, BOB = 1, 1001, 1002
WHERE = {"secretName": "fluxjob-7-token", "secretNamespace": "default"}
SECRET = {"metadata": meta("fluxjob-7-token"),
          "data": {"token": base64.b64encode(b"a.b.c").decode()}}  # fmt: skip


class Api:
    """Holds some objects; or refuses all."""

    def __init__(self, *objects: tuple[Kind, Object], refusal: WarrenError | None = None) -> None:
        self._objects = {(kind, obj["metadata"]["name"]): obj for kind, obj in objects}
        self._refusal = refusal
        self.asked = 0

    async def get(self, kind: Kind, key: Key) -> Object:
        self.asked += 1
        if self._refusal is not None:
            raise self._refusal
        try:
            return self._objects[kind, key.name]
        except KeyError:
            raise NotFound(str(key)) from None


def user_of(job: int) -> int:
    if job != 7:
        raise RpcError(errno.ENOENT, "unknown job id")
    return ALICE


def workflow(**status: Any) -> tuple[Kind, Object]:
    return kinds.WORKFLOW, raw_workflow(metadata={"name": "fluxjob-7"}, status=status)


def asked(api: Any, userid: int, **payload: Any) -> Any:
    bus = Bus(OWNER)
    tokens = WorkflowTokens(api, user_of)
    bus.register(tokens.name, tokens.methods())
    return asyncio.run(bus.handle(userid).rpc("workflow.token", payload))


def refused(api: Any, userid: int, **payload: Any) -> int:
    with pytest.raises(RpcError) as caught:
        asked(api, userid, **payload)
    return caught.value.errnum


def test_the_jobs_user_is_told_its_token() -> None:
    api = Api(workflow(workflowToken=WHERE), (kinds.SECRET, SECRET))
    assert asked(api, ALICE, id=7) == {"token": "a.b.c"}


def test_no_other_user_is_and_nothing_is_read_for_one() -> None:
    api = Api(workflow(workflowToken=WHERE), (kinds.SECRET, SECRET))
    for other in (BOB, OWNER):
        assert refused(api, other, id=7) == errno.EPERM
    assert api.asked == 0


@pytest.mark.parametrize(
    ("api", "payload", "errnum"),
    [
        (Api(), {}, errno.EPROTO),
        (Api(), {"id": True}, errno.EPROTO),
        (Api(), {"id": 8}, errno.ENOENT),
        (Api(), {"id": 7}, errno.ENOENT),
        (Api(workflow()), {"id": 7}, errno.ENOENT),
        (Api(workflow(workflowToken=WHERE)), {"id": 7}, errno.ENOENT),
        (Api(workflow(workflowToken=WHERE), (kinds.SECRET, {**SECRET, "data": {}})), {"id": 7},
         errno.ENOENT),
        (Api(refusal=Forbidden("no")), {"id": 7}, errno.EACCES),
        (Api(refusal=Unavailable("later")), {"id": 7}, errno.EAGAIN),
    ],
)  # fmt: skip
def test_why_there_is_none_is_said(api: Api, payload: dict[str, Any], errnum: int) -> None:
    assert refused(api, ALICE, **payload) == errnum
