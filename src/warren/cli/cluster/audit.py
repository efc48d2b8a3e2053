"""`warren conductor audit`: where jobs, Workflows, nodes and rabbits do not agree."""

import errno
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from warren.base.errors import UserMistake
from warren.base.objects import Change
from warren.base.printable import printable
from warren.cli.common import ask_instance, f58, json_option, print_json, run, statedir_option
from warren.cli.storage import list_objects
from warren.daemons.statedir import StateDir
from warren.dws import kinds
from warren.dws.jobs import jobaudit
from warren.dws.jobs.jobaudit import Difference, JobAuditSnapshot, UndrainNode
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.lifecycle.states import ACTIVE
from warren.wlm import identity
from warren.wlm.codec import BINDING

_SECONDS_BETWEEN_LOOKS = 1.0
"""Seconds between two looks."""

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.command("audit")
@statedir_option
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
@json_option
def audit(statedir: StateDir, repair: bool, as_json: bool) -> None:
    """Compare jobs with Workflows, and nodes and rabbits out of service with their reasons.

    --repair returns nodes and rabbits to service that a job took out of it, if nothing of that job
    is left on them. Exits with 1 if a difference is left in the end. `warren doctor` finds orphaned
    resources on nodes and in the API.
    """
    statedir.check_owner()
    _check_instance_owner(statedir)
    seen_before = {(each.about, each.why) for each in _differences(statedir)}
    time.sleep(_SECONDS_BETWEEN_LOOKS)  # a difference that was only passing is gone by then
    differences = [each for each in _differences(statedir) if (each.about, each.why) in seen_before]
    if repair:
        _repair(statedir, differences)
    remaining = [each for each in differences if not (repair and each.remedy)]
    if as_json:
        print_json({"found": [_as_json(each) for each in differences], "repaired": repair})
    else:
        _print_differences(differences, repair=repair)
    if remaining:
        raise click.exceptions.Exit(1)


def _check_instance_owner(statedir: StateDir) -> None:
    """Raise UserMistake for a guest of the instance: root is one at another user's."""
    from warren.rpc.message import RpcError

    try:
        ask_instance(statedir, identity.find_instance_id)
    except RpcError as error:
        if error.errnum != errno.EPERM:
            raise
        raise UserMistake(
            "Jobs are compared by the owner of the instance alone, and this user is none: run it "
            "as the owner, or as root where access.allow-root-owner is set."
        ) from error


def _differences(statedir: StateDir) -> list[Difference]:
    from warren.cli.job.listing import list_jobs

    async def query(handle: "Handle") -> tuple[dict[int, str | None], dict[str, str], str]:
        active = {"states": [sum(each.bit for each in ACTIVE)]}
        request = {"attrs": ["annotations"], "max_entries": 0, "constraint": active}
        jobs = await list_jobs(handle, request)
        status = await handle.rpc("resource.status")
        workflow_name_by_job = {each["id"]: _workflow_name(each) for each in jobs}
        drain_reason_by_node = {
            each["name"]: each["reason"] for each in status["nodes"] if "reason" in each
        }
        return workflow_name_by_job, drain_reason_by_node, await identity.find_instance_id(handle)

    workflows, storages, mounts = list_objects(
        statedir, kinds.WORKFLOW, kinds.STORAGE, kinds.CLIENT_MOUNT
    )
    workflow_name_by_job, drain_reason_by_node, instance_id = ask_instance(statedir, query)
    snapshot = JobAuditSnapshot(
        workflow_name_by_job=workflow_name_by_job,
        workflows=[read(each, Workflow) for each in workflows],
        storages=[read(each, Storage) for each in storages],
        mounts=[read(each, ClientMount) for each in mounts],
        drain_reasons=drain_reason_by_node,
        wlm_instance=instance_id,
    )
    return jobaudit.differences(snapshot, BINDING.job_id, f58, time.time())


def _workflow_name(job: Mapping[str, Any]) -> str | None:
    name = (job.get("annotations") or {}).get("user", {}).get("rabbit_workflow")
    return str(name) if name else None


def _repair(statedir: StateDir, differences: Sequence[Difference]) -> None:
    from warren.kube import kubeconfig
    from warren.kube.http import connect

    remedies = jobaudit.remedies(differences)

    async def change() -> None:
        async with connect(kubeconfig.load(statedir.kubeconfig)) as client:
            for each in remedies:
                if isinstance(each, Change):
                    await client.patch(each)

    async def undrain(handle: "Handle") -> None:
        for each in remedies:
            if isinstance(each, UndrainNode):
                await handle.rpc("resource.undrain", {"targets": each.node})

    run(change())
    ask_instance(statedir, undrain)


def _as_json(difference: Difference) -> dict[str, Any]:
    return {
        "about": difference.about,
        "why": difference.why,
        "can_be_repaired": difference.remedy is not None,
    }


def _print_differences(differences: Sequence[Difference], *, repair: bool) -> None:
    for each in differences:
        repaired = " (repaired)" if repair and each.remedy is not None else ""
        click.echo(printable(f"{each.about} {each.why}{repaired}"))
    if not differences:
        click.echo("jobs, Workflows, nodes and rabbits agree")
    elif not repair and any(each.remedy is not None for each in differences):
        click.echo("`warren conductor audit --repair` repairs what can be repaired")
