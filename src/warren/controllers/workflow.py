"""Workflows: their states, and the work of their directives (decided in `dws.workflow.driver`)."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from warren.base.accounts import groups_of
from warren.base.clock import Clock
from warren.base.objects import Key, Kind, Object, key_of
from warren.controllers.filesystemtypes import why_not_made
from warren.controllers.live import REQUEUE_DELAY, orphan_removals
from warren.controllers.newkeys import new_ssh_key
from warren.controllers.persistent import InstanceReader
from warren.controllers.tokens import Tokens
from warren.controllers.users import user_getter
from warren.dws import changes, containerauth, kinds, labels, nodelocal, reports
from warren.dws.containerauth import TokenSecrets
from warren.dws.containers import ports
from warren.dws.containers.ports import NnfPortManager
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storages import Storage
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import Workflow
from warren.dws.offload import copyservice
from warren.dws.offload.copyservice import OffloadService
from warren.dws.persistent.instances import InstanceSnapshot, instance_names, is_shared_with_groups
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.pods.pod import why_no_node_runs_pods
from warren.dws.workflow import containersteps, copysteps, driver
from warren.dws.workflow.workflowsnapshot import WorkflowSnapshot
from warren.kube.client import Client, NotFound
from warren.kube.informer import Informer, Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

T = TypeVar("T")

_GONE_AFTER_TEARDOWN: Final = (
    kinds.NNF_STORAGE,
    kinds.NNF_ACCESS,
    kinds.NNF_DATA_MOVEMENT,
    kinds.BATCH_JOB,
)
"""What is gone when Teardown is ready (`driver.needs_live_read`)."""

_CHILD_KINDS: Final = (*kinds.DELETED_WITH_WORKFLOW, *_GONE_AFTER_TEARDOWN)
_CONTAINER_KINDS: Final = (kinds.BATCH_JOB, kinds.CONTAINER_PROFILE)


class WorkflowController:
    """Reconciles every Workflow."""

    def __init__(
        self, client: Client, informers: Informers, clock: Clock, mount_prefix: str
    ) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock
        self._mount_prefix = mount_prefix
        self._configuration: Object | None = None
        self._rabbits_of_all_computes: Mapping[str, str] | None = None
        self._positions: Mapping[str, int] = {}
        self._offload_service: OffloadService | None = None
        self.reconciler: Reconciler[Key] = Reconciler(
            "workflow", self.reconcile, user=user_getter(informers.of(kinds.WORKFLOW))
        )
        informers.of(kinds.WORKFLOW).listen(self._workflow_changed)
        informers.of(kinds.LUSTRE_FILE_SYSTEM)
        informers.of(kinds.STORAGE)
        informers.of(kinds.SYSTEM_CONFIGURATION).listen(lambda obj: self._wake_failed())
        for kind in _CHILD_KINDS:
            informers.of(kind).listen_to_changes(partial(self._child_changed, kind))
        informers.of(kinds.NODE)
        informers.of(kinds.PORT_MANAGER).listen_to_changes(self._ports_changed)
        self._instances = InstanceReader(client, informers)
        self._tokens = Tokens(client)
        informers.of(kinds.PERSISTENT_INSTANCE).listen(
            lambda obj: self._instance_changed(str(key_of(obj)))
        )
        informers.of(kinds.SERVERS).listen(self._servers_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a Workflow."""
        raw = self._informers.of(kinds.WORKFLOW).get(key)
        if raw is None:
            kind = kinds.NNF_DATA_MOVEMENT
            movements = self._informers.of(kind).by_index("workflow", str(key))
            removals = await orphan_removals(self._client, kinds.WORKFLOW, key, kind, movements)
            await perform(self._client, removals)
            return None
        workflow = read(raw, Workflow)
        children: dict[Kind, Sequence[Object]] = {
            kind: self._informers.of(kind).by_index("workflow", str(key)) for kind in _CHILD_KINDS
        }
        instance_keys = [
            Key(key.namespace, name) for name in instance_names(workflow.spec.dw_directives)
        ]
        instances = {each.name: self._instances.read_cached(each) for each in instance_keys}
        rabbits = _Rabbits(self._informers.of(kinds.STORAGE))
        token_secrets = await self._tokens.find(workflow)
        snapshot = self._snapshot(workflow, children, rabbits, instances, token_secrets)
        # No informer tells of Secrets.
        lacks_secrets = token_secrets is not None and not containerauth.has_both_secrets(
            workflow, token_secrets
        )
        needs_live = driver.needs_live_read(snapshot)
        writes = [] if needs_live else driver.decide(snapshot)
        if not needs_live and not driver.reports_error(workflow, writes):
            written = await perform(self._client, writes)
            if driver.is_final(snapshot):
                uid = workflow.metadata.uid
                own_versions = [each for each in written if each["metadata"].get("uid") == uid]
                self.reconciler.note_written(key, own_versions)
            return REQUEUE_DELAY if lacks_secrets else containersteps.requeue_delay(snapshot)
        kinds_to_list = (
            _GONE_AFTER_TEARDOWN if needs_live and not workflow.metadata.deleting else _CHILD_KINDS
        )
        children |= await self._list_live(
            workflow, kinds_to_list, has_containers=snapshot.has_containers
        )
        instances = {each.name: await self._instances.read_live(each) for each in instance_keys}
        if not needs_live:
            rabbits = await self._rabbits(children[kinds.SERVERS], instances.values())
        live_snapshot = self._snapshot(workflow, children, rabbits, instances, token_secrets)
        await perform(self._client, driver.decide(live_snapshot))
        return REQUEUE_DELAY if lacks_secrets or self._has_unseen(children) else None

    async def _list_live(
        self, workflow: Workflow, kinds_to_list: Iterable[Kind], *, has_containers: bool
    ) -> Mapping[Kind, Sequence[Object]]:
        """Return children of a Workflow as they are by now. All kinds are asked for at once."""
        # What no directive has asked for is not asked for, either.
        listed_kinds = [
            each for each in kinds_to_list if has_containers or each not in _CONTAINER_KINDS
        ]
        owner_labels = labels.of_workflow(workflow)
        lists = await asyncio.gather(
            *(self._client.list(kind, labels=owner_labels) for kind in listed_kinds)
        )
        return {kind: each.items for kind, each in zip(listed_kinds, lists, strict=True)}

    def _workflow_changed(self, obj: Object) -> None:
        key = key_of(obj)
        workflow = self._informers.of(kinds.WORKFLOW).get(key)
        if workflow is None:
            # Of one that is gone nothing is left but what was made too late.
            if self._informers.of(kinds.NNF_DATA_MOVEMENT).is_indexed("workflow", str(key)):
                self.reconciler.add(key)
        elif not changes.has_nothing_to_decide(workflow):
            self.reconciler.add(key, workflow)

    def _child_changed(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        for name in labels.workflow_of(after or before or {}):
            key = Key.parse(name)
            workflow = self._informers.of(kinds.WORKFLOW).get(key)
            if workflow is None or (
                not changes.has_nothing_to_decide(workflow)
                and changes.is_relevant_to_workflow(kind, before, after, workflow)
            ):
                self.reconciler.add(key)

    def _wake_failed(self) -> None:
        """Wake the Workflows in error: nodes that they name may have joined."""
        for each in self._informers.of(kinds.WORKFLOW).by_index("in error", reports.IN_ERROR):
            self.reconciler.add(key_of(each))

    def _instance_changed(self, instance: str) -> None:
        """Wake the Workflows that an instance may keep waiting: not all its users."""
        for each in self._informers.of(kinds.WORKFLOW).by_index("instance", instance):
            if not (each.get("status") or {}).get("ready"):
                self.reconciler.add(key_of(each))

    def _ports_changed(self, before: Object | None, after: Object | None) -> None:
        """Wake the Workflows that wait for their ports, or for having given them back."""
        # One that has given them back is not named any more.
        for key in {*ports.workflows_of(before or {}), *ports.workflows_of(after or {})}:
            workflow = self._informers.of(kinds.WORKFLOW).get(key)
            if workflow is not None and not (workflow.get("status") or {}).get("ready"):
                self.reconciler.add(key)

    def _servers_changed(self, obj: Object) -> None:
        for instance in labels.persistent_instance_of(obj):
            self._instance_changed(instance)

    def _wiring(self) -> Mapping[str, str] | None:
        """Return the rabbits of the compute nodes: made once for a configuration, not a job.

        So are their positions at their rabbits, and where copies are asked for.
        """
        raw = self._informers.of(kinds.SYSTEM_CONFIGURATION).get(kinds.CONFIGURATION_KEY)
        if raw is not self._configuration:
            self._configuration = raw
            configuration = read(raw, SystemConfiguration) if raw else None
            self._rabbits_of_all_computes = (
                configuration.rabbits_of_all_computes() if configuration else None
            )
            self._positions = nodelocal.positions(configuration) if configuration else {}
            self._offload_service = copyservice.service_of_configuration(raw)
        return self._rabbits_of_all_computes

    def _has_unseen(self, children: Mapping[Kind, Sequence[Object]]) -> bool:
        return any(
            self._informers.of(kind).get(key_of(obj)) is None
            for kind, objects in children.items()
            for obj in objects
        )

    async def _rabbits(
        self, raw_servers: Sequence[Object], instances: Iterable[InstanceSnapshot | None]
    ) -> "_Rabbits":
        """Return the rabbits: those that are assigned as they are by now."""
        all_servers = [read(each_servers, Servers) for each_servers in raw_servers]
        all_servers += [each.servers for each in instances if each and each.servers]
        names = {
            server.name
            for each_servers in all_servers
            for each in each_servers.spec.allocation_sets
            for server in each.storage
        }
        live_rabbits = {}
        for name in sorted(names):
            with suppress(NotFound):
                raw = await self._client.get(kinds.STORAGE, Key(kinds.DEFAULT_NAMESPACE, name))
                live_rabbits[name] = read(raw, Storage)
        return _Rabbits(self._informers.of(kinds.STORAGE), live_rabbits)

    def _snapshot(
        self,
        workflow: Workflow,
        children: Mapping[Kind, Sequence[Object]],
        rabbits: Mapping[str, Storage],
        instances: Mapping[str, InstanceSnapshot | None],
        token_secrets: TokenSecrets | None,
    ) -> WorkflowSnapshot:
        movements = [
            obj
            for obj in children[kinds.NNF_DATA_MOVEMENT]
            if copysteps.is_movement_of(obj, workflow)
        ]
        children = {**children, kinds.NNF_DATA_MOVEMENT: movements}

        def by_name(kind: Kind, type_: type[T]) -> dict[str, T]:
            return {obj["metadata"]["name"]: read(obj, type_) for obj in children[kind]}

        return WorkflowSnapshot(
            workflow=workflow,
            breakdowns=by_name(kinds.BREAKDOWN, DirectiveBreakdown),
            servers=by_name(kinds.SERVERS, Servers),
            storages=by_name(kinds.NNF_STORAGE, NnfStorage),
            accesses=by_name(kinds.NNF_ACCESS, NnfAccess),
            movements=[read(obj, NnfDataMovement) for obj in movements],
            computes=next((read(obj, Computes) for obj in children[kinds.COMPUTES]), None),
            file_systems=[
                read(obj, LustreFileSystem)
                for obj in self._informers.of(kinds.LUSTRE_FILE_SYSTEM).all()
            ],
            rabbits=rabbits,
            instances={name: each for name, each in instances.items() if each is not None},
            groups=groups_of(workflow.spec.user_id)
            if is_shared_with_groups(instances.values())
            else (),
            dependents=[
                (kind, key_of(obj))
                for kind in kinds.DELETED_WITH_WORKFLOW
                for obj in children[kind]
            ],
            wiring=self._wiring(),
            positions=self._positions,
            offload_service=self._offload_service,
            copy_profiles={
                obj["metadata"]["name"]: obj
                for obj in self._informers.of(kinds.COPY_PROFILE).by_index(
                    "profiles", kinds.PROFILES_NAMESPACE
                )
            },
            pinned_copy_profiles={
                obj["metadata"]["name"]: obj for obj in children[kinds.COPY_PROFILE]
            },
            **self._container_fields(workflow, children),
            token_secrets=token_secrets,
            mount_prefix=self._mount_prefix,
            why_not_made=partial(why_not_made, self._informers.of(kinds.STORAGE)),
            now=self._clock.now(),
        )

    def _container_fields(
        self, workflow: Workflow, children: Mapping[Kind, Sequence[Object]]
    ) -> dict[str, Any]:
        """Return what Workflows with containers look at."""
        if not containersteps.may_have_containers(workflow.spec.dw_directives):
            return {}
        profiles = self._informers.of(kinds.CONTAINER_PROFILE)
        raw = self._informers.of(kinds.PORT_MANAGER).get(ports.MANAGER_KEY)
        return {
            "container_profiles": {
                obj["metadata"]["name"]: obj
                for obj in profiles.by_index("profiles", kinds.PROFILES_NAMESPACE)
            },
            "pinned_container_profiles": {
                obj["metadata"]["name"]: obj for obj in children[kinds.CONTAINER_PROFILE]
            },
            "container_jobs": {
                obj["metadata"]["name"]: read(obj, BatchJob) for obj in children[kinds.BATCH_JOB]
            },
            "port_manager": read(raw, NnfPortManager) if raw is not None else None,
            "pod_nodes": _Nodes(self._informers.of(kinds.NODE)),
            "new_ssh_key": new_ssh_key,
            "why_no_containers": why_no_node_runs_pods(self._informers.of(kinds.NODE).values()),
        }


class _Rabbits(Mapping[str, Storage]):
    """The rabbits by name. A reconcile that looks at a few of them costs no look at the others."""

    def __init__(self, informer: Informer, live: Mapping[str, Storage] | None = None) -> None:
        """`live` holds some that may not have been seen yet as they are."""
        self._informer = informer
        self._live = live or {}

    def __getitem__(self, name: str) -> Storage:
        if name in self._live:
            return self._live[name]
        raw = self._informer.get(Key(kinds.DEFAULT_NAMESPACE, name))
        if raw is None:
            raise KeyError(name)
        return read(raw, Storage)

    def __iter__(self) -> Iterator[str]:
        known = self._informer.keys()
        return iter({key.name for key in known} | self._live.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Nodes(Mapping[str, Object]):
    """The Nodes by name. To look for a few of them costs no look at the others."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def __getitem__(self, name: str) -> Object:
        raw = self._informer.get(Key("", name))
        if raw is None:
            raise KeyError(name)
        return raw

    def __bool__(self) -> bool:
        return not self._informer.is_empty

    def __iter__(self) -> Iterator[str]:
        return iter([key.name for key in list(self._informer.keys())])

    def __len__(self) -> int:
        return len(self._informer.keys())
