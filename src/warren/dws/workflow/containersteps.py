"""Containers beside a job: what is done for a `container` directive in each state.

The rabbits of the job's compute nodes run one batch Job each, from PreRun on; PostRun waits for
them, and Teardown removes them before anything is unmounted (dws-spec section 12).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from warren.base.objects import Change, Create, Object, Write
from warren.base.times import parse_rfc3339
from warren.directives.parse import Directive, parse
from warren.dws import children, containerauth, kinds, nodelocal
from warren.dws.containers import applications, containerdata, containerprofiles, mpi, ports
from warren.dws.containers.applications import Application, ApplicationStorage
from warren.dws.containers.containerprofiles import GLOBAL_PREFIX, ContainerProfile
from warren.dws.copies import staging
from warren.dws.faults import Fault
from warren.dws.objects.decoding import Malformed
from warren.dws.objects.workflows import State
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.pods.pod import why_not_ready
from warren.dws.workflow.workflowsnapshot import DONE, Outcome, WorkflowSnapshot

_REQUEUE_DELAY: Final = 1.0
"""Seconds after which a rabbit that runs no containers is looked at again. Nodes tell of themselves
too often for Workflows to be woken by that."""

_LIFETIME_BY_PREFIX: Final = {
    containerprofiles.JOB_PREFIX: "job",
    containerprofiles.PERSISTENT_PREFIX: "persistent",
}


def may_have_containers(directives: Sequence[str]) -> bool:
    """Return whether some directive may be one for containers."""
    return any("container" in text for text in directives)


def container_index(directives: Sequence[str]) -> int | None:
    """Return the index of the directive for containers: there is one at most."""
    indexes = (index for index, text in enumerate(directives) if _is_container(text))
    return next(indexes, None)


def _is_container(text: str) -> bool:
    return parse(text).command.text == "container"


# What a directive names


def target_indexes(snapshot: WorkflowSnapshot, directive: Directive) -> list[int]:
    """Return the indexes of the directives whose storage a container has. Raises Fault."""
    return sorted(set(_target_index_by_argument(snapshot, directive).values()))


def all_target_indexes(snapshot: WorkflowSnapshot) -> set[int]:
    """Return the indexes of the directives whose storage any container has."""
    return {
        target_index
        for directive in snapshot.directives
        if directive.command.text == "container"
        for target_index in _target_index_by_argument(snapshot, directive).values()
    }


def _target_index_by_argument(snapshot: WorkflowSnapshot, directive: Directive) -> dict[str, int]:
    index_by_storage = staging.indexes_by_storage(snapshot.directives)
    target_index_by_argument = {}
    for argument in directive.arguments:
        key = containerprofiles.argument_name(argument.key.text)
        lifetime = next(
            (each for prefix, each in _LIFETIME_BY_PREFIX.items() if key.startswith(prefix)), None
        )
        if lifetime is None or argument.value is None:
            continue
        target_index = index_by_storage.get((lifetime, argument.value.text))
        if target_index is None:  # Proposal was forced
            raise Fault(f"this job has no storage named {argument.value.text!r}", type="User")
        target_index_by_argument[key] = target_index
    return target_index_by_argument


def _profile(snapshot: WorkflowSnapshot, index: int) -> ContainerProfile:
    """Return the directive's own copy. Raises Fault where it is not there."""
    obj = snapshot.pinned_container_profiles.get(snapshot.child_name(index))
    if obj is None:
        raise Fault(f"the NnfContainerProfile {snapshot.child_name(index)} is gone")
    try:
        return containerprofiles.decode(obj)
    except Malformed as error:
        raise Fault(str(error)) from error


def _application(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Application:
    """Return what a directive runs. Raises Fault where that is not known, or not possible."""
    profile = _profile(snapshot, index)
    manager, workflow = snapshot.port_manager, snapshot.workflow
    assigned_ports = (
        ports.assigned_ports(manager, workflow, profile.port_count) if profile.port_count else ()
    )
    return Application(
        workflow=workflow,
        index=index,
        name=directive.values["name"],
        profile=profile,
        storages=list(_storages(snapshot, directive, profile)),
        nodes_by_rabbit=_nodes_by_rabbit(snapshot),
        ports=assigned_ports,
    )


def _nodes_by_rabbit(snapshot: WorkflowSnapshot) -> Mapping[str, Sequence[str]]:
    """Return the job's compute nodes, without those that it has lost, by their rabbits."""
    wiring = snapshot.wiring or {}
    nodes_by_rabbit: dict[str, list[str]] = {}
    for node in snapshot.computes.data if snapshot.computes else ():
        if wiring.get(node.name) and node.name not in snapshot.lost_nodes:
            nodes_by_rabbit.setdefault(wiring[node.name], []).append(node.name)
    if not nodes_by_rabbit:
        raise Fault("the job's compute nodes have no rabbit that could run its containers")
    return nodes_by_rabbit


def _why_not_run(snapshot: WorkflowSnapshot, rabbits: Iterable[str]) -> str | None:
    """Return which rabbit runs no containers, and why; None where all do."""
    for rabbit in sorted(rabbits):
        node = snapshot.pod_nodes.get(rabbit)
        why = "it is no node of the cluster" if node is None else why_not_ready(node)
        if why is not None:
            return f"no containers run on {rabbit}: {why}"
    return None


def _storages(
    snapshot: WorkflowSnapshot, directive: Directive, profile: ContainerProfile
) -> Iterator[ApplicationStorage]:
    target_index_by_argument = _target_index_by_argument(snapshot, directive)
    value_by_name = {
        containerprofiles.argument_name(each.key.text): each.value
        for each in directive.arguments
        if each.value is not None
    }
    for name, need in profile.storage_by_argument.items():
        if name in target_index_by_argument:
            fs_type = type_of(snapshot, target_index_by_argument[name])
            path = snapshot.mount_path(target_index_by_argument[name])
            allocation_numbers = (
                _allocation_numbers(snapshot, target_index_by_argument[name])
                if fs_type != "lustre"
                else None
            )
            yield ApplicationStorage(
                need=need, path=path, allocation_numbers=allocation_numbers, is_raw=fs_type == "raw"
            )
        elif name.startswith(GLOBAL_PREFIX) and name in value_by_name:
            file_system = staging.file_system_of(value_by_name[name].text, snapshot.file_systems)
            namespace = snapshot.workflow.metadata.namespace
            if file_system is None or namespace not in file_system.spec.namespaces:
                path_text = value_by_name[name].text
                raise Fault(f"{path_text} is no global file system for {namespace}", type="User")
            mode = (need.pvc_mode or "readwritemany").lower()
            meta = file_system.metadata
            claim_name = f"{meta.name}-{meta.namespace}-{mode}-pvc"
            yield ApplicationStorage(
                need=need, path=file_system.spec.mount_root, claim_name=claim_name
            )


def _allocation_numbers(snapshot: WorkflowSnapshot, index: int) -> Mapping[str, int]:
    """Return which allocation of its rabbit is each compute node's (`dws.access.clientmounts`)."""
    if snapshot.directives[index].command.text == "persistentdw":
        return snapshot.positions
    nodes = snapshot.computes.data if snapshot.computes is not None else ()
    return nodelocal.allocation_numbers((node.name for node in nodes), snapshot.wiring or {})


def type_of(snapshot: WorkflowSnapshot, index: int) -> str:
    """Return the type of the file systems of a directive's storage."""
    directive = snapshot.directives[index]
    instance = snapshot.instances.get(directive.values["name"])
    return directive.values.get("type") or (instance.object.spec.fs_type if instance else "")


# The states


def pin_profile(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Make the directive's own copy of its profile, which is read from then on."""
    name = snapshot.child_name(index)
    if name in snapshot.pinned_container_profiles:
        return DONE
    source = snapshot.container_profiles[directive.values["profile"]]
    copy = {
        "metadata": children.metadata(snapshot.workflow, name, index),
        "data": {**containerprofiles.current_form(source), "pinned": True},
    }
    write = Create(kind=kinds.CONTAINER_PROFILE, object=copy)
    return Outcome(writes=[write], waiting="status pending")


def set_up(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Have the token made that containers know the job by, if they need one; reserve ports."""
    outcome = make_token(snapshot)
    if outcome.waiting is not None:
        return outcome
    return reserve_ports(snapshot, index, directive)


def make_token(snapshot: WorkflowSnapshot) -> Outcome:
    """Have the token made by which a job is known, where its Workflow requires one."""
    if not containerauth.is_enabled(snapshot.workflow):
        return DONE
    secrets = snapshot.token_secrets
    if secrets is None:  # the random new key comes with them
        return Outcome(waiting="waits for its Secrets to be looked at")
    next_secret = containerauth.next_secret(snapshot.workflow, secrets, snapshot.now)
    if next_secret is None:
        return DONE
    # Another message for each Secret: the change of the status wakes the Workflow again.
    awaited = "its token" if secrets.key is not None else "the key of its token"
    return Outcome(writes=[next_secret], waiting=f"waits for {awaited}")


def reserve_ports(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Ask for the ports of the containers; the job's tasks are told which they are."""
    profile = _profile(snapshot, index)
    if not profile.port_count:
        return DONE
    manager, workflow = snapshot.port_manager, snapshot.workflow
    assigned_ports = ports.assigned_ports(manager, workflow, profile.port_count)
    if assigned_ports:
        return Outcome(env=applications.port_variables(profile, assigned_ports))
    request = (
        ports.request_ports(manager, workflow, profile.port_count) if manager is not None else None
    )
    return Outcome(writes=[request] if request else [], waiting="waits for ports of its containers")


def start(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Make the batch Jobs, and wait until each has started. What they use is mounted.

    Raises Fault where one has failed: the job's tasks would not find it.
    """
    application = _application(snapshot, index, directive)
    if not application.profile.data.create_container:
        return _leave_to_others(snapshot, application, directive)
    _raise_for_failed(snapshot, application.profile)
    all_jobs = list(mpi.jobs(application) if application.is_mpi else application.jobs())
    missing = [job for job in all_jobs if job["metadata"]["name"] not in snapshot.container_jobs]
    existing_jobs = [snapshot.container_jobs.get(job["metadata"]["name"]) for job in all_jobs]
    not_started = next(
        (job for job in existing_jobs if job is not None and not job.has_started), None
    )
    if missing or not_started is not None:
        limit = application.profile.data.pre_run_timeout_seconds
        why_not_run = _why_not_run(snapshot, application.nodes_by_rabbit) if missing else None
        if limit and _elapsed(snapshot) >= limit:
            why = f": {why_not_run}" if why_not_run else ""
            raise Fault(f"user container(s) failed to start after {limit} seconds{why}")
        if why_not_run is not None:
            return Outcome(waiting=why_not_run)  # it may be able in a moment, as after a restart
        name = (
            missing[0]["metadata"]["name"] if missing else not_started and not_started.metadata.name
        )
        waiting = f"pending container start for job '{name}'"
        return Outcome(writes=_start_writes(snapshot, application, missing), waiting=waiting)
    return Outcome(env=application.variables())


def _start_writes(
    snapshot: WorkflowSnapshot, application: Application, missing: Sequence[Object]
) -> list[Write]:
    if not missing:
        return []
    writes: list[Write] = [*_shared_objects(application)]
    if application.is_mpi:
        # One that is there stays: pods may have its keys already.
        keys = mpi.ssh_secret(application, snapshot.new_ssh_key())
        writes.append(Create(kind=kinds.SECRET, object=keys))
    return [*writes, *(Create(kind=kinds.BATCH_JOB, object=job) for job in missing)]


def _leave_to_others(
    snapshot: WorkflowSnapshot, application: Application, directive: Directive
) -> Outcome:
    """Say where the storage is for the job that starts the application, and wait for nothing."""
    data = containerdata.make(
        application, _target_index_by_argument(snapshot, directive), snapshot.directives
    )
    # Written before the Workflow is told of it, and made once: no event of it would come here.
    writes = [*_shared_objects(application), Create(kind=kinds.CONTAINER_DATA, object=data)]
    return Outcome(writes=writes, env=application.variables())


def _shared_objects(application: Application) -> Iterator[Write]:
    yield Create(kind=kinds.SERVICE, object=application.service())
    config = application.config()
    if config is not None:
        yield Create(kind=kinds.CONFIG_MAP, object=config)


def _elapsed(snapshot: WorkflowSnapshot) -> float:
    """Return for how many seconds the Workflow has been in its state."""
    entered_at = snapshot.workflow.status.desired_state_change
    return snapshot.now - parse_rfc3339(entered_at) if entered_at else 0.0


def requeue_delay(snapshot: WorkflowSnapshot) -> float | None:
    """Return after how many seconds to look again at containers that have not started.

    When they take too long, and sooner where no event comes of what they wait for.
    """
    workflow = snapshot.workflow
    if workflow.status.state is not State.PRE_RUN or workflow.status.ready:
        return None
    delays: list[float] = []
    for index, directive in enumerate(snapshot.directives):
        if directive.command.text == "container":
            with suppress(Fault):  # is told by the state itself
                data = _profile(snapshot, index).data
                if data.pre_run_timeout_seconds:
                    delays.append(data.pre_run_timeout_seconds - _elapsed(snapshot))
                if data.create_container and not snapshot.container_jobs:
                    why_not_run = _why_not_run(snapshot, _nodes_by_rabbit(snapshot))
                    delays += [_REQUEUE_DELAY] if why_not_run is not None else []
    return min((each for each in delays if each > 0), default=None)


def finish(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Wait until all containers have come to their end. Raises Fault where one has failed."""
    profile = _profile(snapshot, index)
    limit = profile.data.post_run_timeout_seconds
    _raise_for_failed(snapshot, profile)
    unfinished = [job for job in _awaited_jobs(snapshot) if not job.is_complete]
    if not unfinished or not limit:
        return DONE
    return Outcome(
        writes=[
            _limit_time(snapshot, job, limit)
            for job in unfinished
            if job.spec.active_deadline_seconds is None
        ],
        waiting="pending container finish",
    )


def _awaited_jobs(snapshot: WorkflowSnapshot) -> list[BatchJob]:
    """Return the Jobs that come to an end by themselves: workers serve as long as they may."""
    return [job for job in snapshot.container_jobs.values() if not mpi.is_worker(job.metadata)]


def _raise_for_failed(snapshot: WorkflowSnapshot, profile: ContainerProfile) -> None:
    if snapshot.container_jobs and all(job.is_complete for job in _awaited_jobs(snapshot)):
        return  # what has become of workers since then has no meaning
    for job in snapshot.container_jobs.values():
        failure = job.failure
        if failure is not None and failure.reason == "DeadlineExceeded":
            limit = profile.data.post_run_timeout_seconds
            raise Fault(f"user container(s) failed to complete after {limit} seconds", type="User")
        if failure is not None:
            why = failure.message or failure.reason or failure.type
            raise Fault(f"the container job {job.metadata.name} has failed: {why}", type="User")


def _limit_time(snapshot: WorkflowSnapshot, job: BatchJob, limit: int) -> Change:
    """Have a Job fail when its time is over, which counts from its start."""
    started_at = job.status.start_time or job.metadata.creation_timestamp
    age = max(0, int(snapshot.now - parse_rfc3339(started_at))) if started_at else 0
    return Change(
        kind=kinds.BATCH_JOB,
        key=job.metadata.key,
        patch={"spec": {"activeDeadlineSeconds": age + limit}},
        resource_version=job.metadata.resource_version,
    )


def free_ports(snapshot: WorkflowSnapshot) -> Outcome:
    """Give the ports back, and wait until they are free."""
    uid = snapshot.workflow.metadata.uid
    change = ports.release_ports(snapshot.port_manager, uid)
    if change is None and ports.are_released(snapshot.port_manager, uid):
        return DONE
    return Outcome(writes=[change] if change else [], waiting="waits until its ports are free")
