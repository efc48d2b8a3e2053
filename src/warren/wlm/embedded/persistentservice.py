"""The service `persistent`: users list, share and destroy their persistent storage.

Users are told of what they may use, and change what is theirs; the owner of the instance is told of
all, and may change it. Who asks is what the socket says of the other end (ADR 057).
"""

import errno
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.base.accounts import groups_of, user_name
from warren.base.clock import Clock
from warren.base.objects import Change, Key, Object
from warren.base.words import plural
from warren.dws import kinds, labels
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import read
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.persistent import expiry, instances, sharing
from warren.dws.persistent.sharing import Sharing, may_use
from warren.kube.client import Client, Conflict, NotFound
from warren.kube.informer import Informers
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Cred, Payload, Request, RpcError
from warren.wlm.codec import BINDING

_MAX_SHARED_WITH: Final = 100
"""Users and groups that may share one instance: all stand in each access control list."""
_MAX_TRIES: Final = 5
"""How often a change is decided again because the instance has changed meanwhile."""


class _SharedWith(msgspec.Struct, frozen=True):
    everyone: bool = False
    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    def sharing(self) -> Sharing:
        shared = Sharing(
            everyone=self.everyone, users=frozenset(self.users), groups=frozenset(self.groups)
        )
        if sharing.parse(str(shared)) != shared:
            raise RpcError(
                errno.EINVAL, "Users and groups are given by numbers that the system has."
            )
        return shared


class _ShareRequest(msgspec.Struct, frozen=True):
    name: str
    add: _SharedWith = _SharedWith()
    remove: _SharedWith = _SharedWith()


class _ExpireRequest(msgspec.Struct, frozen=True):
    name: str
    expires: float | None


class _DestroyRequest(msgspec.Struct, frozen=True):
    name: str


class PersistentService:
    """The persistent storage in the namespace of jobs' Workflows, for users of the instance."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        max_lifetime: float | None = None,
        read_groups: Callable[[int], Collection[int]] = groups_of,
    ) -> None:
        """`max_lifetime` is for how many seconds storage is kept at most; None: no limit."""
        self._clock = clock
        self._max_lifetime = max_lifetime
        self._client = client
        self._read_groups = read_groups
        self._persistent = informers.of(kinds.PERSISTENT_INSTANCE)
        self._servers = informers.of(kinds.SERVERS)

    def methods(self) -> Methods:
        return {
            "list": Method(self._list, guest=True),
            "share": Method(self._share, guest=True),
            "expire": Method(self._expire, guest=True),
            "destroy": Method(self._destroy, guest=True),
        }

    async def _list(self, request: Request) -> Payload:
        groups: Collection[int] | None = None
        summaries = []
        for raw in self._persistent.all():
            if raw["metadata"]["namespace"] != kinds.DEFAULT_NAMESPACE:
                continue
            obj = read(raw, PersistentStorageInstance)
            shared = sharing.from_annotations(obj.metadata.annotations)
            if shared.groups and groups is None:
                groups = self._read_groups(request.cred.userid)
            user = request.cred.userid
            if request.cred.is_owner or may_use(obj.spec.user_id, shared, user, groups or ()):
                servers = self._servers.get(obj.metadata.key)
                summaries.append(summary(obj, servers))
        return {"persistent": sorted(summaries, key=lambda each: str(each["name"]))}

    async def _share(self, request: Request) -> Payload:
        message = _decode(request, _ShareRequest)
        added, removed = message.add.sharing(), message.remove.sharing()

        def decide(obj: PersistentStorageInstance) -> Change | None:
            before = sharing.from_annotations(obj.metadata.annotations)
            after = (before | added) - removed
            if len(after.users) + len(after.groups) > _MAX_SHARED_WITH:
                raise RpcError(
                    errno.EINVAL,
                    f"{message.name} would be shared with more than {_MAX_SHARED_WITH} users "
                    "and groups: make a group of them, and share it with that.",
                )
            patch = {"metadata": {"annotations": sharing.annotations(after)}}
            return _change(obj, patch) if after != before else None

        changed = await self._change_storage(request.cred, message.name, "share it", decide)
        return {"persistent": summary(changed, self._servers.get(changed.metadata.key))}

    async def _expire(self, request: Request) -> Payload:
        message = _decode(request, _ExpireRequest)
        if (
            message.expires is not None
            and not self._clock.now() < message.expires <= expiry.LAST_TIMESTAMP
        ):
            raise RpcError(errno.EINVAL, "Storage expires at a time in the future.")

        def decide(obj: PersistentStorageInstance) -> Change | None:
            meta = obj.metadata
            text = None if message.expires is None else expiry.expiry_text(message.expires)
            new_meta = replace(meta, annotations={labels.EXPIRES: text} if text else {})
            if (
                latest := expiry.expiry_time(new_meta, self._max_lifetime)
            ) != expiry.from_annotations(new_meta.annotations):
                assert latest is not None
                raise RpcError(
                    errno.EINVAL,
                    f"The persistent storage {message.name!r} is kept until "
                    f"{expiry.expiry_text(latest)} at most (storage.persistent-max).",
                )
            return _change(obj, {"metadata": {"annotations": {labels.EXPIRES: text}}})

        changed = await self._change_storage(
            request.cred, message.name, "say when it expires", decide
        )
        return {"persistent": summary(changed, self._servers.get(changed.metadata.key))}

    async def _destroy(self, request: Request) -> Payload:
        message = _decode(request, _DestroyRequest)

        def decide(obj: PersistentStorageInstance) -> Change | None:
            consumers = _consumers(obj)
            if consumers["count"]:
                raise RpcError(
                    errno.EBUSY,
                    f"The persistent storage {message.name!r} cannot be destroyed while "
                    f"{plural(consumers['count'], 'job')} use it: try again when they have ended.",
                )
            if obj.metadata.deleting or obj.spec.state == "Destroying":
                return None
            # The controller deletes it; no job begins to use it from now on.
            return _change(obj, {"spec": {"state": "Destroying"}})

        await self._change_storage(request.cred, message.name, "destroy it", decide)
        return {}

    async def _change_storage(
        self,
        cred: Cred,
        name: str,
        action: str,
        decide: Callable[[PersistentStorageInstance], Change | None],
    ) -> PersistentStorageInstance:
        """Change storage that the user may change, and return it. Raises RpcError."""
        for _ in range(_MAX_TRIES):
            try:
                raw = await self._client.get(
                    kinds.PERSISTENT_INSTANCE, Key(kinds.DEFAULT_NAMESPACE, name)
                )
                obj = read(raw, PersistentStorageInstance)
                if not cred.is_owner and obj.spec.user_id != cred.userid:
                    raise RpcError(
                        errno.EPERM,
                        f"The persistent storage {name!r} is {user_name(obj.spec.user_id)}'s: only "
                        f"that user, or the owner of the instance, can {action}.",
                    )
                change = decide(obj)
                if change is None:
                    return obj
                return read(await self._client.patch(change), PersistentStorageInstance)
            except NotFound:
                raise RpcError(
                    errno.ENOENT, f"There is no persistent storage named {name!r}."
                ) from None
            except Conflict:
                continue
        raise RpcError(errno.EAGAIN, f"The persistent storage {name!r} keeps changing: try again.")


def summary(obj: PersistentStorageInstance, raw_servers: Object | None) -> dict[str, Any]:
    """Return what users are told of an instance. Sizes are in bytes."""
    shared = sharing.from_annotations(obj.metadata.annotations)
    sets = read(raw_servers, Servers).spec.allocation_sets if raw_servers is not None else ()
    servers_with_size = [(each.allocation_size, server) for each in sets for server in each.storage]
    consumers = _consumers(obj)
    error = obj.status.error
    return {
        "name": obj.metadata.name,
        "type": obj.spec.fs_type,
        "capacity": sum(size * server.allocation_count for size, server in servers_with_size),
        "userid": obj.spec.user_id,
        "state": "Destroying" if obj.metadata.deleting else obj.status.state or "Creating",
        "jobs": consumers["jobs"],
        "workflows": consumers["workflows"],
        "shared": {
            "everyone": shared.everyone,
            "users": sorted(shared.users),
            "groups": sorted(shared.groups),
        },
        "expires": expiry.from_annotations(obj.metadata.annotations),
        "rabbits": sorted({server.name for _, server in servers_with_size}),
        "directive": obj.spec.dw_directive,
        "error": (error.user_message or error.debug_message) if error is not None else "",
    }


def _consumers(obj: PersistentStorageInstance) -> Mapping[str, Any]:
    """Return the jobs that use an instance, and the Workflows of other workload managers."""
    workflow_keys = {instances.workflow_key_of(each) for each in obj.spec.consumer_references}
    names = sorted(each.name for each in workflow_keys if each is not None)
    return {
        "jobs": [job for name in names if (job := BINDING.job_id(name)) is not None],
        "workflows": [name for name in names if BINDING.job_id(name) is None],
        "count": len(obj.spec.consumer_references),
    }


def _change(obj: PersistentStorageInstance, patch: Object) -> Change:
    return Change(
        kind=kinds.PERSISTENT_INSTANCE,
        key=obj.metadata.key,
        patch=patch,
        resource_version=obj.metadata.resource_version,
    )


def _decode(request: Request, message_type: type[Any]) -> Any:
    try:
        return msgspec.convert(request.payload, message_type)
    except msgspec.ValidationError as error:
        raise RpcError(errno.EPROTO, f"received malformed request: {error}") from None
