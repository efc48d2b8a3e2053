"""Reconciles jobs with their Workflows: look at the job and its Workflow, decide, act.

News of either has the job reconciled. Nothing is remembered in between but when a
Workflow was first seen in TransientCondition or Error, or that its job was let go, what a job has
been shown, and the nodes that a Workflow has left drained.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.base.objects import Change, Create, Key, Kind, Object, Remove, key_of
from warren.base.times import from_go_duration
from warren.conductor.capacities import Capacities
from warren.conductor.logtails import LogTails
from warren.conductor.podlists import PodLists
from warren.conductor.returntoservice import ReturnToService
from warren.conductor.staledrains import StaleDrains
from warren.conductor.systemstatus import KEY as SYSTEM_STATUS_KEY
from warren.conductor.workflowquota import MAX_DIRECTIVES, QuotaKey, WorkflowQuota, quota_key_of
from warren.conductor.workloadmanager import WorkloadManager
from warren.dws import changes, kinds, labels, nodelocal, tolerance
from warren.dws.binding import Phase
from warren.dws.faults import Fault
from warren.dws.jobs import abort, conduct, jobactions, placement, summary, waits
from warren.dws.jobs.abort import Leftovers
from warren.dws.jobs.jobactions import Action
from warren.dws.jobs.jobsnapshot import Job, JobSnapshot
from warren.dws.jobs.timeouts import NO_TIMEOUTS, Timeouts
from warren.dws.jobs.unsavedresults import UnsavedPolicy
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.decoding import Malformed, read, read_other
from warren.dws.objects.nnfstorages import NnfNodeStorage
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storages import Storage
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import Workflow
from warren.dws.rabbits import alerts, systemstatus
from warren.kube.client import Client, Forbidden, LogReader, NotFound
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.refusallog import RefusalLog
from warren.kube.runtime import Reconciler


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a site wants of the storage of jobs."""

    placement_policy: placement.PlacementPolicy = placement.DEFAULT_POLICY
    timeouts: Timeouts = NO_TIMEOUTS
    unsaved_policy: UnsavedPolicy = UnsavedPolicy.FLUSH
    """What becomes of what jobs have written that are cancelled, and do not say."""
    daemons: Collection[str] | None = None
    """Those that jobs may name with `requires`, where that is known."""
    drains: bool = True
    """Whether nodes are drained that jobs lose to failing storage."""
    return_to_service: bool = False
    """Whether what was taken out of service with a job returns by itself (`rabbits.selftest`)."""
    max_recorded_movements: int = 0
    """How many copies are kept with the record of a job."""


_DEFAULTS: Final = Settings()

_REFUSED_RETRY_DELAY: Final = 30.0
"""Seconds after which a write is tried again that was refused for a job that ends."""


class Conductor:
    """Leads the Workflows of all jobs. `run` lives until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        wlm: WorkloadManager,
        clock: Clock,
        min_allocation: int,
        settings: Settings = _DEFAULTS,
        reader: LogReader | None = None,
        max_directives: int = MAX_DIRECTIVES,
    ) -> None:
        """`min_allocation` is the least size of one allocation, in bytes.

        What containers have printed is read by `reader`, for the records of jobs. A user's jobs in
        a queue that hold no nodes have Workflows with `max_directives` together.
        """
        self._log_tails = None if reader is None else LogTails(reader)
        self._pod_lists = PodLists(client)
        self._client = client
        self.informers = informers
        self._wlm = wlm
        self._clock = clock
        self._min_allocation = min_allocation
        self._settings = settings
        self.on_state_ready: Callable[[str, float], None] = lambda state, seconds: None
        """Called with the seconds that a Workflow took until it was ready in a state."""
        self._refusals = RefusalLog()
        self._has_logged_no_shares = False
        self._trouble_since: dict[int, float] = {}
        self._let_go_since: dict[int, float] = {}
        self._shown_memos: dict[int, dict[str, str]] = {}
        self._observed_timings: dict[int, set[str]] = {}
        self._nodes_to_undrain: dict[int, Collection[str]] = {}
        """The nodes of Workflows that were marked (`abort`) and are gone, until they are back."""
        self.reconciler: Reconciler[int] = Reconciler(
            "conductor", self.reconcile, workers=8, user=wlm.userid
        )
        self._quota = WorkflowQuota(self.reconciler.add, max_directives)
        wlm.listen(self.reconciler.add)
        for kind in kinds.FOR_WORKLOAD_MANAGERS:
            informers.of(kind).listen_to_changes(partial(self._dependent_changed, kind))
        informers.of(kinds.WORKFLOW).listen(self._workflow_changed)
        informers.of(kinds.SYSTEM_CONFIGURATION)
        informers.of(kinds.CLIENT_MOUNT).listen_to_changes(self._mount_changed)
        informers.of(kinds.NNF_DATA_MOVEMENT)
        self._return_to_service = ReturnToService(
            client, informers, clock, enabled=settings.return_to_service
        )
        self._stale_drains = StaleDrains(informers, wlm, enabled=settings.return_to_service)
        self._capacities = Capacities(informers.of(kinds.STORAGE))
        informers.of(kinds.STORAGE).listen(self._rabbit_changed)

    def configure(self, settings: Settings) -> None:
        """Lead by other settings from now on: limits hold for the states that jobs are in."""
        if settings != self._settings:
            self._settings = settings
            self._return_to_service.configure(enabled=settings.return_to_service)
            self._stale_drains.configure(enabled=settings.return_to_service)
            for job in self._wlm.job_ids():
                self.reconciler.add(job)

    async def run(self) -> None:
        """Lead until cancelled, from when everything is known."""
        await self.informers.wait_synced()
        await self._wlm.wait_synced()
        self._log_workflows_of_others()
        # From when it is known in which queues their jobs are.
        self.informers.of(kinds.WORKFLOW).listen(self._count_workflow)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reconciler.run())
            tasks.create_task(self._return_to_service.reconciler.run())
            tasks.create_task(self._stale_drains.reconciler.run())
            self._stale_drains.enqueue()
            for job in self._wlm.job_ids():
                self.reconciler.add(job)

    async def reconcile(self, job_id: int) -> float | None:
        """Reconcile a job."""
        # While the jobs are being told anew, one that is not known may not be over.
        await self._wlm.wait_synced()
        job = self._job_or_over(job_id)
        if self._is_of_another_instance(job_id):
            self._wlm.answer_requests(job, None)
            return None
        configuration = self._configuration()  # what is wrong with that is no job's mistake
        self._count_job(job)
        mistake = None
        delay = None
        try:
            snapshot = self._snapshot(job, configuration)
            if snapshot.workflow is None:
                snapshot = replace(snapshot, is_admitted=self._admit(job))
            delay = await self._act(job, await self._decide(snapshot))
        except Forbidden:
            raise  # is for the API's admin: the job's author can do nothing about it
        except (Fault, UserMistake) as error:
            mistake = str(error)
            if job.phase in (Phase.ENDING, Phase.OVER):
                # Its author can do nothing about it any more, and its storage must go all the same.
                self._refusals.note_refusal(job_id, mistake)
                delay = _REFUSED_RETRY_DELAY
            else:
                log.info("job refused", job=job_id, reason=mistake)
                if not job.failed:
                    type_ = job.binding.exception_type(job.phase)
                    delay = await self._wlm.raise_exception(job, type_, mistake)
        else:
            self._refusals.note_success(job_id)
        self._wlm.answer_requests(job, mistake)
        if job.phase is Phase.OVER:
            self._shown_memos.pop(job_id, None)
            self._observed_timings.pop(job_id, None)
            self._nodes_to_undrain.pop(job_id, None)
        return delay

    def _count_job(self, job: Job) -> None:
        """Count a job's Workflow as the job is now; let it wait for none that is to have none."""
        raw = self.informers.of(kinds.WORKFLOW).get(job.workflow_key)
        if raw is not None:
            self._count_workflow(raw)  # it may be in another queue, or held, since that changed
        elif not _is_waiting(job):
            self._quota.remove(job.id)

    def _admit(self, job: Job) -> bool:
        """Return whether a job without a Workflow may have one. Raises UserMistake."""
        if not _is_waiting(job):
            return True  # what becomes of it is not for the quota to say
        self._wlm.check_allowed(job)
        return self._quota.admit(job)

    def wait_reasons(self, job_ids: Iterable[int]) -> Mapping[int, str]:
        """Return what jobs wait for, as far as their storage is concerned; for those that do."""
        configuration = self._configuration()
        reasons = {}
        for job_id in job_ids:
            job = self._wlm.job(job_id)
            # Most jobs of a long list run, or wait for nodes: nothing is looked up for them.
            if job is None or job.phase not in waits.PHASES:
                continue
            raw = self.informers.of(kinds.WORKFLOW).get(job.workflow_key)
            try:
                workflow = read(raw, Workflow) if raw is not None else None
            except Malformed:
                continue  # it is told so when it is reconciled
            reason = waits.reason(job, workflow, configuration, self._quota.reason(job_id))
            if reason is not None:
                reasons[job_id] = reason
        return reasons

    async def storage(self, job_id: int) -> Mapping[str, Any] | None:
        """Return what there is to say of a job's storage now; None where it has no Workflow."""
        job = self._wlm.job(job_id)
        raw = self.informers.of(kinds.WORKFLOW).get(job.workflow_key) if job is not None else None
        if job is None or raw is None:
            return None
        computes = self._objects_of(kinds.COMPUTES, job)
        summary_now = summary.summary(
            read(raw, Workflow),
            [read(obj, Servers) for obj in self._objects_of(kinds.SERVERS, job)],
            read(computes[0], Computes) if computes else None,
            _mounted_nodes(self._mounts(job)),
            self._objects_of(kinds.NNF_DATA_MOVEMENT, job),
            await self._pod_lists.read_recent(read(raw, Workflow)),
        )
        return {**summary_now, "waits": self.wait_reasons([job_id]).get(job_id, "")}

    async def _decide(self, snapshot: JobSnapshot) -> list[Action]:
        """Decide. Raises Fault where the job cannot go on."""
        try:
            return conduct.decide(await self._complete(snapshot))
        except Fault:
            if snapshot.workflow is None:
                raise
            # Some of what was seen may be older than the rest: no object is blamed for that.
            selector = labels.of_workflow(snapshot.workflow)
            live_dependents = {
                kind: (await self._client.list(kind, labels=selector)).items
                for kind in kinds.FOR_WORKLOAD_MANAGERS
            }
            live_snapshot = self._snapshot(
                self._job_or_over(snapshot.job.id), snapshot.configuration, live_dependents
            )
            return conduct.decide(await self._complete(live_snapshot))

    async def _complete(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Look up what is no object of the job's Workflow, where it matters."""
        completed = await self._with_existing_servers(
            await self._with_flash(await self._with_new_persistent(snapshot))
        )
        if completed.workflow is not None and conduct.depends_on_pods(completed):
            completed = replace(completed, pods=await self._pod_lists.read_live(completed.workflow))
        return self._with_shared_nodes(self._with_rabbits(await self._with_abort_check(completed)))

    async def _with_new_persistent(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Look up persistent storage that the job makes: it has its own Servers."""
        instances, servers = {}, dict(snapshot.servers)
        for key in conduct.new_persistent_servers(snapshot):
            try:
                # Not as they were seen: one of this name may have been another user's before.
                raw = await self._client.get(kinds.PERSISTENT_INSTANCE, key)
                servers[key.name] = read(await self._client.get(kinds.SERVERS, key), Servers)
            except NotFound:
                raise Fault(f"persistent storage {key.name!r} is gone", type="User") from None
            instances[key] = read(raw, PersistentStorageInstance)
        return (
            replace(snapshot, persistent_instances=instances, servers=servers)
            if instances
            else snapshot
        )

    async def _with_existing_servers(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Look up where persistent storage is that a job is about to be placed beside."""
        if snapshot.job.phase is not Phase.HELD:
            return snapshot
        used_servers = {}
        for key in nodelocal.existing_storage_constraints(snapshot.breakdowns.values()):
            # Kinds are watched one by one: these may not have been seen yet.
            seen = self.informers.of(kinds.SERVERS).get(key)
            try:
                raw_servers = seen or await self._client.get(kinds.SERVERS, key)
            except NotFound:
                continue
            used_servers[key] = read_other(raw_servers, Servers)
        return replace(snapshot, existing_servers=used_servers) if used_servers else snapshot

    async def _with_flash(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Look up which rabbits' flash the job was given, where that matters."""
        if not conduct.depends_on_held_flash(snapshot):
            return snapshot
        return replace(snapshot, flash=await self._wlm.flash(snapshot.job))

    async def _with_abort_check(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Look up whether a job was aborted, and what it has left behind."""
        if not conduct.depends_on_abort(snapshot):
            self._let_go_since.pop(snapshot.job.id, None)
            return snapshot
        if not await self._wlm.ended_by_epilog_timeout(snapshot.job):
            return snapshot
        assert snapshot.workflow is not None  # it was asked for
        rabbits = abort.rabbits_with_allocations(snapshot.servers.values())
        wiring = snapshot.configuration.rabbits_of_computes() if snapshot.configuration else {}
        # Not since the time limit was over: an agent that was started anew waits anew, and both are
        # by an upgrade.
        now = asyncio.get_running_loop().time()
        leftovers = Leftovers(
            seconds=now - self._let_go_since.setdefault(snapshot.job.id, now),
            mounts=self._mounts(snapshot.job),
            shares=await self._shares(snapshot.workflow),
            storages=self._rabbits(rabbits),
            unreachable_nodes=await self._unreachable_nodes(),
            rabbits_of_nodes=wiring,
        )
        return replace(snapshot, leftovers=leftovers)

    async def _shares(self, workflow: Workflow) -> Sequence[NnfNodeStorage] | None:
        """Return the shares of a job's flash on rabbits; None where we may not list them."""
        try:
            shares = await self._client.list(
                kinds.NNF_NODE_STORAGE, labels=labels.of_workflow(workflow)
            )
        except Forbidden as error:
            # The role is of before ADR 110. The job's storage must go all the same.
            if not self._has_logged_no_shares:
                log.warning(
                    "all rabbits of jobs that epilog_timeout lets go are disabled: apply "
                    "deploy/rbac/conductor.yaml anew",
                    reason=str(error),
                )
            self._has_logged_no_shares = True
            return None
        return [read_other(raw, NnfNodeStorage) for raw in shares.items]

    async def _unreachable_nodes(self) -> frozenset[str]:
        """Return the nodes that the SystemStatus says are out of reach."""
        try:
            status = await self._client.get(kinds.SYSTEM_STATUS, SYSTEM_STATUS_KEY)
        except NotFound:
            return frozenset()
        return systemstatus.disabled_nodes(status)

    def _with_rabbits(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Look up the rabbits that a running job depends on."""
        if snapshot.job.phase is not Phase.RUNNING or snapshot.workflow is None:
            return snapshot
        wiring = snapshot.configuration.rabbits_of_computes() if snapshot.configuration else {}
        rabbits = {wiring[node] for node in snapshot.job.nodes if node in wiring}
        for each in snapshot.servers.values():
            rabbits.update(
                server.name
                for allocation_set in each.spec.allocation_sets
                for server in allocation_set.storage
            )
        return replace(snapshot, storages=self._rabbits(rabbits))

    def _with_shared_nodes(self, snapshot: JobSnapshot) -> JobSnapshot:
        """Look up which nodes of an aborted job another aborted job has, too."""
        workflow, computes = snapshot.workflow, snapshot.computes
        nodes = {*snapshot.nodes_to_undrain}
        if (
            snapshot.return_to_service
            and workflow
            and computes
            and abort.is_marked_aborted(workflow)
        ):
            nodes |= {each.name for each in computes.data}
        own_key, workflows = snapshot.job.workflow_key, self.informers.of(kinds.WORKFLOW)
        shared = set()
        for node in nodes:
            for other in self.informers.of(kinds.COMPUTES).by_index("compute", node):
                raw = workflows.get(key_of(other))
                if raw and key_of(raw) != own_key and abort.has_abort_annotation(raw):
                    shared.add(node)
        return replace(snapshot, nodes_shared_with_aborted=shared) if shared else snapshot

    def _rabbits(self, names: Iterable[str]) -> dict[str, Storage]:
        storages = self.informers.of(kinds.STORAGE)
        raw_storages = {name: storages.get(Key(kinds.DEFAULT_NAMESPACE, name)) for name in names}
        return {
            name: read_other(raw, Storage) for name, raw in raw_storages.items() if raw is not None
        }

    def _job_or_over(self, job_id: int) -> Job:
        return self._wlm.job(job_id) or Job(id=job_id, phase=Phase.OVER, binding=self._wlm.binding)

    def _is_of_another_instance(self, job_id: int) -> bool:
        """Return whether what looks like an orphan is the Workflow of another instance's job."""
        raw = self.informers.of(kinds.WORKFLOW).get(self._wlm.binding.workflow_key(job_id))
        if raw is None or self._wlm.job(job_id) is not None:
            return False
        return labels.is_of_another_wlm_instance(
            raw["metadata"].get("labels") or {}, self._wlm.instance
        )

    def _log_workflows_of_others(self) -> None:
        """Log which Workflows are left alone, for those of an instance that is lost stay."""
        names = sorted(key_of(raw).name for raw in self.informers.of(kinds.WORKFLOW).all())
        job_ids = {name: self._wlm.binding.job_id(name) for name in names}
        names_of_others = [
            name
            for name, job_id in job_ids.items()
            if job_id is not None and self._is_of_another_instance(job_id)
        ]
        if names_of_others:
            log.warning(
                "Workflows of another instance are left alone: where that instance is lost, take "
                "away their label",
                label=labels.WLM_INSTANCE,
                workflows=names_of_others,
            )

    def _configuration(self) -> SystemConfiguration | None:
        raw = self.informers.of(kinds.SYSTEM_CONFIGURATION).get(kinds.CONFIGURATION_KEY)
        return read(raw, SystemConfiguration) if raw is not None else None

    def _snapshot(
        self,
        job: Job,
        configuration: SystemConfiguration | None,
        dependents: Mapping[Kind, Sequence[Object]] | None = None,
    ) -> JobSnapshot:
        """Return what is seen of a job. Raises Malformed for an object of its own."""
        settings = self._settings
        raw = self.informers.of(kinds.WORKFLOW).get(job.workflow_key)
        objects = dependents or {
            kind: self._objects_of(kind, job) for kind in kinds.FOR_WORKLOAD_MANAGERS
        }
        breakdowns = [read(obj, DirectiveBreakdown) for obj in objects[kinds.BREAKDOWN]]
        servers = [read(obj, Servers) for obj in objects[kinds.SERVERS]]
        computes = next(iter(objects[kinds.COMPUTES]), None)
        workflow = read(raw, Workflow) if raw is not None else None
        mounts = self._mounts(job)
        now = self._clock.now()
        not_fully_mounted, silent, at_fault = _lacking_nodes(job, workflow, mounts, now)
        return JobSnapshot(
            job=job,
            workflow=workflow,
            raw_workflow=raw,
            breakdowns={each.metadata.name: each for each in breakdowns},
            servers={each.metadata.name: each for each in servers},
            computes=read(computes, Computes) if computes else None,
            configuration=configuration,
            mounted_nodes=_mounted_nodes(mounts),
            not_fully_mounted_nodes=not_fully_mounted,
            silent_nodes=silent,
            nodes_at_fault=at_fault,
            wlm_instance=self._wlm.instance,
            shown_memos=self._shown_memos.get(job.id, {}),
            drains_lost_nodes=settings.drains,
            nodes_to_undrain=self._nodes_to_undrain.get(job.id, ()),
            return_to_service=settings.return_to_service,
            max_recorded_movements=settings.max_recorded_movements,
            movements=self._movements(job),
            min_allocation_bytes=self._min_allocation,
            largest_rabbit_gib=self._capacities.largest_gib(),
            policy=settings.placement_policy,
            daemons=settings.daemons,
            seconds_in_trouble=self._seconds_in_trouble(job.id, workflow),
            timeouts=settings.timeouts,
            default_unsaved_policy=settings.unsaved_policy,
            last_copy_progress_at=self._last_copy_progress(job),
            now=now,
        )

    def _mounts(self, job: Job) -> Sequence[ClientMount]:
        return [read(obj, ClientMount) for obj in self._objects_of(kinds.CLIENT_MOUNT, job)]

    def _last_copy_progress(self, job: Job) -> float | None:
        """Return when copies of a job last went on, where its time runs while they do."""
        if job.phase is not Phase.ENDING or not self._settings.timeouts.teardown_after:
            return None
        movements = [read(obj, NnfDataMovement) for obj in self._movements(job)]
        return max(filter(None, (each.status.last_progress_at for each in movements)), default=None)

    def _movements(self, job: Job) -> Sequence[Object]:
        return self._objects_of(kinds.NNF_DATA_MOVEMENT, job) if job.phase is Phase.ENDING else ()

    def _objects_of(self, kind: Kind, job: Job) -> Sequence[Object]:
        return self.informers.of(kind).by_index("workflow", str(job.workflow_key))

    def _seconds_in_trouble(self, job_id: int, workflow: Workflow | None) -> float | None:
        if workflow is None or workflow.status.status not in ("TransientCondition", "Error"):
            self._trouble_since.pop(job_id, None)
            return None
        # Not by the clock, which may be set meanwhile: that would end all jobs in trouble at once.
        now = asyncio.get_running_loop().time()
        return now - self._trouble_since.setdefault(job_id, now)

    async def _act(self, job: Job, actions: Sequence[Action]) -> float | None:
        """Do what was decided, in order; return the seconds after which to look again."""
        delay = None
        for action in jobactions.merge_kept_values(actions):
            match action:
                case Create() | Change() | Remove():
                    await perform(self._client, [action])
                case jobactions.ReleaseToScheduler(resources, constraints, nodes, daemons):
                    await self._wlm.release_to_scheduler(
                        job, resources, constraints, nodes, daemons
                    )
                case jobactions.Start(variables):
                    await self._wlm.start(job, variables)
                case jobactions.Finish():
                    await self._wlm.finish(job)
                case jobactions.FreeNodes(nodes):
                    await self._wlm.free_nodes(job, nodes)
                case jobactions.Drain(nodes, reason):
                    await self._wlm.drain(nodes, reason)
                case jobactions.Undrain(nodes, reason):
                    await self._wlm.undrain(nodes, reason)
                case jobactions.RaiseException(type_, note, severity):
                    delay = _sooner(
                        delay, await self._wlm.raise_exception(job, type_, note, severity)
                    )
                case jobactions.KeepValues(values):
                    await self._wlm.record(job, values)
                    for key, value in values.items():
                        self._observe_timing(job, key, value)
                case jobactions.KeepLogs(logs):
                    if self._log_tails is not None:
                        text = await self._log_tails.text(logs)
                        await self._wlm.record(job, {jobactions.CONTAINER_LOG: text})
                case jobactions.Memo(values):
                    await self._show(job, values)
                case jobactions.RequeueAfter(seconds):
                    delay = _sooner(delay, seconds)
        return delay

    def _observe_timing(self, job: Job, key: str, value: Any) -> None:
        """Tell how long a state took, once."""
        match = jobactions.TIMING_KEY_PATTERN.fullmatch(key)
        if match is not None and key not in self._observed_timings.setdefault(job.id, set()):
            self._observed_timings[job.id].add(key)
            self.on_state_ready(match[1], from_go_duration(value))

    async def _show(self, job: Job, values: Mapping[str, str]) -> None:
        # A memo is an event of the job, and has it reconciled: shown again each time, that never
        # ends while the Workflow is behind.
        shown = self._shown_memos.setdefault(job.id, {})
        if not values.items() <= shown.items():
            await self._wlm.memo(job, values)
            shown.update(values)

    def _count_workflow(self, obj: Object) -> None:
        """Count a Workflow for its user as long as no nodes are held with it."""
        key = key_of(obj)
        job_id = self._wlm.binding.job_id(key.name)
        if job_id is None or key != self._wlm.binding.workflow_key(job_id):
            return  # it has a job's name, in another namespace
        raw = self.informers.of(kinds.WORKFLOW).get(key)
        if (
            raw is None
            or not conduct.counts_as_waiting(raw)
            or self._is_of_another_instance(job_id)
        ):
            self._quota.remove(job_id)
            return
        job, spec = self._wlm.job(job_id), raw["spec"]
        if job is not None:
            quota_key = quota_key_of(job)
        else:
            # What is over is forgotten, and its Teardown counts where it has counted before.
            queue = (raw["metadata"].get("annotations") or {}).get(labels.QUEUE, "")
            quota_key = self._quota.quota_key(job_id) or QuotaKey(spec.get("userID", 0), queue)
        self._quota.count(job_id, quota_key, len(spec.get("dwDirectives") or ()))

    def _workflow_changed(self, obj: Object) -> None:
        key = key_of(obj)
        job_id = self._wlm.binding.job_id(key.name)
        if job_id is None:
            return
        is_gone = self.informers.of(kinds.WORKFLOW).get(key) is None
        job = self._wlm.job(job_id)
        is_finished = conduct.is_finished(obj, job, self._wlm.binding.finalizer)
        nodes = _nodes_of_abort(obj) if is_gone and self._settings.return_to_service else ()
        if nodes:
            self._nodes_to_undrain[job_id] = nodes
        if is_finished and not nodes and job_id not in self._trouble_since:
            return
        # What has no job is torn down wherever it is.
        must_go = is_gone or job is None
        must_go = must_go or conduct.is_torn_down_early(job, obj["spec"]["desiredState"])
        # Of what its drivers write in between, nothing is to be decided.
        if (
            must_go
            or job_id in self._trouble_since
            or conduct.may_need_action(obj, self._settings.timeouts)
        ):
            self.reconciler.add(job_id)

    def _dependent_changed(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        for workflow in labels.workflow_of(after or before or {}):
            raw = self.informers.of(kinds.WORKFLOW).get(Key.parse(workflow))
            # In the middle of a state nothing is to be decided: its end is an event, too.
            if (
                raw is not None
                and conduct.may_need_action(raw, self._settings.timeouts)
                and changes.is_relevant_to_conductor(kind, before, after, raw)
            ):
                self._wake_job_of(raw["metadata"]["name"])

    def _mount_changed(self, before: Object | None, after: Object | None) -> None:
        """Have a job reconciled that waits for its flash alone, when a node has let go of that."""
        for workflow in labels.workflow_of(after or before or {}):
            raw = self.informers.of(kinds.WORKFLOW).get(Key.parse(workflow))
            if raw and conduct.is_stuck_in_teardown(raw) and conduct.has_unmounted(before, after):
                self._wake_job_of(raw["metadata"]["name"])

    def _rabbit_changed(self, obj: Object) -> None:
        """Have the jobs reconciled whose flash or nodes are a rabbit's."""
        servers, computes = self.informers.of(kinds.SERVERS), self.informers.of(kinds.COMPUTES)
        for each in servers.by_index("rabbit", obj["metadata"]["name"]):
            self._dependent_changed(kinds.SERVERS, None, each)
        for node in alerts.linked_nodes_of(obj):
            for each in computes.by_index("compute", node):
                self._dependent_changed(kinds.COMPUTES, None, each)

    def _wake_job_of(self, workflow_name: str) -> None:
        job_id = self._wlm.binding.job_id(workflow_name)
        if job_id is not None:
            self.reconciler.add(job_id)


def _is_waiting(job: Job) -> bool:
    """Return whether a job may have to wait for its Workflow."""
    return job.phase is Phase.HELD and not job.failed


def _mounted_nodes(mounts: Iterable[ClientMount]) -> Collection[str]:
    """Return the nodes that have a mount of a job's storage, or are not known to have none.

    By the namespace of the mount: its node's agent may write the rest.
    """
    return {each.metadata.namespace for each in mounts if not each.all_in("unmounted")}


def _lacking_nodes(
    job: Job, workflow: Workflow | None, mounts: Iterable[ClientMount], now: float
) -> tuple[Collection[str], Collection[str], Collection[str]]:
    """Return the nodes that have not mounted all of a job's storage, where that matters.

    Then those of them that say nothing of what was made for the job, and those that say that they
    cannot mount that.
    """
    if not job.max_lost_nodes or job.phase is not Phase.STARTING or workflow is None:
        return (), (), ()
    lacking = [each for each in mounts if not each.all_in("mounted")]
    own = [
        each
        for each in lacking
        if each.metadata.labels.get(labels.TARGET_OWNER) == workflow.metadata.uid
    ]
    not_asked = set(job.nodes) - {each.metadata.namespace for each in mounts}
    return (
        {each.metadata.namespace for each in lacking} | not_asked,
        {each.metadata.namespace for each in own if tolerance.is_silent(each, now)},
        {each.metadata.namespace for each in own if tolerance.says_it_cannot_mount(each)},
    )


def _nodes_of_abort(workflow: Object) -> Collection[str]:
    """Return the compute nodes of an aborted job; none where what is noted cannot be read."""
    try:
        return abort.nodes_of_abort(workflow)
    except UserMistake as error:
        name = workflow["metadata"]["name"]
        log.warning("the nodes of an aborted job are not known", workflow=name, reason=str(error))
        return ()


def _sooner(delay: float | None, other_delay: float | None) -> float | None:
    """Return the shorter of two delays, in seconds; None stands for none."""
    return min((each for each in (delay, other_delay) if each is not None), default=None)
