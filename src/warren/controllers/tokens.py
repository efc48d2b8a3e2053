"""The Secrets of a Workflow's token, read past informers: what they hold is kept by no process.

What is made of them is decided in `dws.containerauth`.
"""

from collections.abc import Callable

from warren.base.objects import Key, Object
from warren.controllers.newkeys import new_token_key
from warren.dws import containerauth, kinds
from warren.dws.containerauth import TokenSecrets
from warren.dws.objects.workflows import Workflow
from warren.kube.client import Client, NotFound


class Tokens:
    """Reads the Secrets of Workflows' tokens, and makes keys for new ones."""

    def __init__(self, client: Client, new_key: Callable[[], bytes] = new_token_key) -> None:
        self._client = client
        self._new_key = new_key

    async def find(self, workflow: Workflow) -> TokenSecrets | None:
        """Return what there is of a Workflow's; None where it is not the time to look."""
        if not containerauth.needs_secrets(workflow):
            return None
        key = await self._read(workflow, containerauth.key_name(workflow))
        if key is None:
            return TokenSecrets(new_key=self._new_key())
        return TokenSecrets(
            key=key, token=await self._read(workflow, containerauth.token_name(workflow))
        )

    async def _read(self, workflow: Workflow, name: str) -> Object | None:
        try:
            return await self._client.get(kinds.SECRET, Key(workflow.metadata.namespace, name))
        except NotFound:
            return None
