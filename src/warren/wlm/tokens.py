"""The service `workflow`: a user is told the token of a job's containers (`workflow.token`).

The conductor beside a real Flux has the same as `dws.token`.

Tasks have it as DW_WORKFLOW_TOKEN. Their shell asks when it starts them: what an event or a key of
the KVS says would be kept, and read by others.
"""

import errno
from collections.abc import Callable

from warren.dws import containerauth, kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import Workflow
from warren.kube.client import Client, NotFound, Refused, Unavailable
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError
from warren.wlm.codec import BINDING

TOPIC = "workflow.token"
_SERVICE, _, _METHOD = TOPIC.partition(".")


class WorkflowTokens:
    """The tokens of the Workflows of an instance's jobs."""

    name = _SERVICE

    def __init__(self, client: Client, user_of: Callable[[int], int]) -> None:
        """`user_of` returns the user of an active job, and raises RpcError for any other job."""
        self._client = client
        self._user_of = user_of

    def methods(self) -> Methods:
        return {_METHOD: Method(self._token, guest=True)}

    async def _token(self, request: Request) -> Payload:
        job_id = request.payload.get("id")
        if type(job_id) is not int:
            raise RpcError(errno.EPROTO, f"{TOPIC} takes id")
        # Not the owner of the instance, either: a token is its job's alone.
        if self._user_of(job_id) != request.cred.userid:
            raise RpcError(errno.EPERM, "only the job's own user is told its token")
        try:
            token = await self._read_token(job_id)
        except NotFound:
            token = None
        except Refused as error:
            raise RpcError(errno.EACCES, f"the job's token cannot be read: {error}") from error
        except Unavailable as error:
            raise RpcError(errno.EAGAIN, f"the job's token cannot be read: {error}") from error
        if token is None:
            raise RpcError(errno.ENOENT, "the job's Workflow has no token")
        return {"token": token}

    async def _read_token(self, job_id: int) -> str | None:
        raw = await self._client.get(kinds.WORKFLOW, BINDING.workflow_key(job_id))
        secret_reference = read(raw, Workflow).status.workflow_token
        if secret_reference is None:
            return None
        return containerauth.token_of(await self._client.get(kinds.SECRET, secret_reference.key))
