"""Drains the nodes of a broker that have lost their rabbit: a `health.NodeDrainer`."""

from collections.abc import Iterable

from warren.base import log
from warren.rfc.errors import BadFormat
from warren.rpc.message import Handle, Payload, RpcError
from warren.wlm.nodes import drain_reasons, hosts


class Drainer:
    """Drains and undrains nodes for a reason."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def keep_drained(
        self, lost: Iterable[str], reason: str, among: Iterable[str] | None = None
    ) -> None:
        """Keep nodes drained that have lost something; undrain the others among some, or all.

        Undrained is what was drained for the very same reason: what admins drain stays. Nodes
        that are none of the broker's, or that it refuses to drain, are left alone.
        """
        lost = frozenset(lost)
        try:
            status = await self._handle.rpc("resource.status")
            all_hosts, reason_by_host = frozenset(hosts(status).values()), drain_reasons(status)
        except (RpcError, BadFormat) as error:
            log.warning("nodes are not drained", nodes=sorted(lost), reason=str(error))
            return
        hosts_to_check = all_hosts if among is None else all_hosts.intersection({*among, *lost})
        for host in sorted(hosts_to_check):
            if host in lost and host not in reason_by_host:
                request = {"targets": host, "reason": reason, "mode": "update"}
                await self._ask("resource.drain", request)
            elif host not in lost and reason_by_host.get(host) == reason:
                await self._ask("resource.undrain", {"targets": host})

    async def _ask(self, topic: str, request: Payload) -> None:
        try:
            await self._handle.rpc(topic, request)
        except RpcError as error:  # one that is excluded, say
            log.warning("refused", request=topic, node=request["targets"], reason=str(error))
