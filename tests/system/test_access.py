"""Who may ask what: every topic of the instance, by the owner, the job's user and a stranger."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.harness import users, virtual
from tests.harness.world import World, opened
from warren.base.clock import SystemClock
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.instance import config, keys
from warren.instance.exec.launcher import RemoteLauncher
from warren.instance.simulated import TaskBehavior
from warren.rfc import jobspec, signed_request, treeobj
from warren.rpc import server
from warren.rpc.client import connect
from warren.rpc.message import Handle, RpcError
from warren.rpc.server import AccessPolicy

Asker = Callable[[int, Callable[[Handle], Awaitable[str]]], Awaitable[str]]
"""Lets a user ask, and gives what he got."""

ANSWER, EPERM, ENOENT, EINVAL, EPROTO = "answer", "EPERM", "ENOENT", "EINVAL", "EPROTO"
ECHILD, ENOSYS = "ECHILD", "ENOSYS"

EVERYBODY = (ANSWER, ANSWER, ANSWER)
JOBS_USERS = (ANSWER, ANSWER, EPERM)
NO_STORAGE = (ENOENT, ENOENT, ENOENT)
"""Of a job without any, and of another user's: `test_storage_of_jobs.py` asks for some."""
OWNERS_ALONE = (ANSWER, EPERM, EPERM)
ILL_FORMED = (EPROTO, EPERM, EPERM)
"""What is the owner's alone, asked in a way that changes nothing."""
ILL_FORMED_OF_ALL = (EPROTO, EPROTO, EPROTO)
"""What users may ask about what is theirs, asked in a way that changes nothing."""

GUESTS = config.parse("access.allow-guest-user = true")

WHAT_EACH_GETS: Mapping[str, tuple[str, str, str]] = {
    # By the owner, the job's user, and a stranger, about a job that runs.
    "barrier.enter": EVERYBODY,  # among those of one user
    "config.get": EVERYBODY,
    "config.load": ILL_FORMED,
    "config.watch": OWNERS_ALONE,
    "content.flush": (ENOSYS, EPERM, EPERM),
    "content.load": ILL_FORMED,
    "content.store": ILL_FORMED,
    "content.validate": ILL_FORMED,
    "dws.abort": ILL_FORMED,
    "dws.create": ILL_FORMED,
    "dws.post_run": ILL_FORMED,
    "dws.setup": ILL_FORMED,
    "dws.status": OWNERS_ALONE,
    "dws.storage": NO_STORAGE,
    "dws.teardown": ILL_FORMED,
    "dws.waits": EVERYBODY,  # of his own jobs
    "dws.watch_test": OWNERS_ALONE,
    "feasibility.check": EVERYBODY,
    "groups.get": EVERYBODY,
    "job-exec.exited": OWNERS_ALONE,
    "job-exec.hello": OWNERS_ALONE,
    "job-info.eventlog-watch": JOBS_USERS,
    "job-info.lookup": JOBS_USERS,
    "job-info.update-lookup": JOBS_USERS,
    "job-info.update-watch": JOBS_USERS,
    "job-ingest.getinfo": OWNERS_ALONE,
    "job-ingest.check": EVERYBODY,
    "job-ingest.submit": (EPERM, ANSWER, EPERM),  # what the job's user has signed
    "job-list.job-stats": EVERYBODY,
    "job-list.list": EVERYBODY,  # unless the instance is private
    "job-list.list-attrs": EVERYBODY,
    "job-list.list-id": EVERYBODY,
    "job-manager.alloc-query": EVERYBODY,
    "job-manager.drain": ILL_FORMED,
    "job-manager.dws.epilog-remove": ILL_FORMED,
    "job-manager.dws.release": ILL_FORMED,
    "job-manager.dws.prolog-remove": ILL_FORMED,
    "job-manager.dws.resource-update": ILL_FORMED,
    "job-manager.events-journal": OWNERS_ALONE,
    "job-manager.getattr": EVERYBODY,
    "job-manager.idle": ILL_FORMED,
    "job-manager.jobtap": OWNERS_ALONE,
    "job-manager.jobtap-query": OWNERS_ALONE,
    "job-manager.kill": JOBS_USERS,
    "job-manager.killall": EVERYBODY,  # of one's own jobs
    "job-manager.memo": JOBS_USERS,
    "job-manager.purge": OWNERS_ALONE,
    "job-manager.purge-id": (ENOENT, EPERM, EPERM),
    "job-manager.queue-enable": ILL_FORMED,
    "job-manager.queue-list": EVERYBODY,
    "job-manager.queue-start": ILL_FORMED,
    "job-manager.queue-status": EVERYBODY,
    "job-manager.raise": JOBS_USERS,
    "job-manager.raiseall": EVERYBODY,  # of one's own jobs
    "job-manager.resource-status": EVERYBODY,
    "job-manager.stats-get": EVERYBODY,
    "job-manager.update": OWNERS_ALONE,  # of one that waits, its user may
    "job-manager.urgency": (EINVAL, EINVAL, EPERM),  # it has its resources already
    "job-manager.wait": (ECHILD, ECHILD, EPERM),  # it was not submitted to be waited for
    "kvs-watch.lookup": JOBS_USERS,
    "kvs.commit": JOBS_USERS,
    "kvs.getroot": JOBS_USERS,
    "kvs.list": JOBS_USERS,
    "kvs.lookup": JOBS_USERS,
    "kvs.namespace-create": ILL_FORMED,
    "kvs.namespace-list": EVERYBODY,  # of one's own
    "kvs.namespace-remove": ILL_FORMED,
    "kvs.wait-version": JOBS_USERS,
    "persistent.destroy": ILL_FORMED_OF_ALL,
    "persistent.expire": ILL_FORMED_OF_ALL,
    "persistent.list": EVERYBODY,  # of what one may use
    "persistent.share": ILL_FORMED_OF_ALL,
    "resource.acquire": OWNERS_ALONE,
    "resource.drain": ILL_FORMED,
    "resource.journal": OWNERS_ALONE,
    "resource.sched-status": EVERYBODY,
    "resource.status": EVERYBODY,
    "resource.undrain": ILL_FORMED,
    "sched.expiration": ILL_FORMED,
    "sched.prioritize": ILL_FORMED,
    "sched.resource-status": EVERYBODY,
    "sched.waits": EVERYBODY,
    "sched.why": (ENOENT, ENOENT, ENOENT),  # it has its resources already
    "workflow.token": (EPERM, ENOENT, EPERM),  # `test_tokens.py` asks for some
}


def payload(topic: str, job: int, token: str) -> dict[str, Any]:
    """Return a request about a job that does no harm."""
    guest = {"namespace": keys.guest_namespace(job)}
    more: dict[str, dict[str, Any]] = {
        "barrier.enter": {"name": "meeting", "nprocs": 1, "who": "me"},
        "dws.storage": {"id": job},
        "workflow.token": {"id": job},
        "dws.waits": {"ids": [job]},
        "sched.waits": {"ids": [job]},
        "sched.why": {"id": job},
        "job-exec.exited": {"id": 1, "rank": 0, "status": 0, "note": "", "left": []},
        "job-exec.hello": {"shells": []},
        "job-info.lookup": {"id": job, "keys": ["J", "R", "jobspec", "eventlog", "guest.output"]},
        "job-ingest.submit": {"J": token},
        "job-ingest.check": {"jobspec": jobspec.make(command=["app"])},
        "feasibility.check": {"jobspec": jobspec.make(command=["app"])},
        "groups.get": {"name": "broker.online"},
        "job-info.update-lookup": {"id": job, "key": "R"},
        "job-info.update-watch": {"id": job, "key": "R"},
        "job-manager.drain": {"name": 1},
        "job-manager.getattr": {"name": "max_jobid"},
        "job-manager.idle": {"name": 1},
        "job-manager.jobtap": {"query": True},
        "job-manager.jobtap-query": {"name": "dws"},
        "job-manager.kill": {"id": job, "signum": 23},
        "job-manager.killall": {"signum": 23, "dry_run": True},
        "job-manager.purge": {"num_limit": -1},
        "job-manager.purge-id": {"id": "all"},
        "job-manager.queue-enable": {"enable": "yes"},
        "job-manager.queue-start": {"start": "yes"},
        "job-manager.raiseall": {"type": "note", "severity": 7, "dry_run": True},
        "job-manager.update": {"id": job, "updates": {"attributes.system.duration": 2000.0}},
        "job-manager.urgency": {"id": job, "urgency": 16},
        "job-manager.wait": {"id": job},
        "job-manager.memo": {"id": job, "memo": {"a": 1}},
        "job-manager.raise": {"id": job, "type": "note", "severity": 7},
        "kvs.commit": {
            **guest, "ops": [{"key": "application.a", "dirent": treeobj.val(b"1")}]
        },
        "kvs.getroot": guest,
        "kvs.list": {**guest, "key": "."},
        "kvs.lookup": {**guest, "key": "exec.eventlog"},
        "kvs.wait-version": {**guest, "rootseq": 0},
        "kvs-watch.lookup": {**guest, "key": "exec.eventlog"},
    }  # fmt: skip
    about_it = ("job-info.eventlog-watch", "job-list.list-id")
    return more.get(topic, {"id": job} if topic in about_it else {})


async def got(handle: Handle, topic: str, streaming: bool, request: dict[str, Any]) -> str:
    """Say what came of asking."""
    try:
        if streaming:
            async with aclosing(handle.stream(topic, request)) as answers:  # type: ignore[type-var]
                await anext(answers)
        else:
            await handle.rpc(topic, request)
    except RpcError as error:
        return errno.errorcode[error.errnum]
    return ANSWER


async def told(world: World, control: Control, first: int, second: int, ask: Asker) -> Any:
    """Return what each user got, by topic, while a job of the first one runs."""
    bus = control.instance.bus
    bus.register("job-exec", RemoteLauncher(bus.handle(), bus.owner).methods())
    spec = orjson.dumps(jobspec.make(command=["app"], nodes=1))
    # The instance does not judge a signature: what runs the tasks does.
    token = f"{signed_request.signed_part(spec, first, 'munge')}.MUNGE:AAAA:"
    submitted = await bus.handle(first).rpc("job-ingest.submit", {"J": token})
    job = submitted["id"]
    await world.until(
        lambda: b"start" in (control.instance.kvs.get(keys.job_key(job, "eventlog")) or b"")
    )
    await world.until(lambda: control.instance.kvs.get(keys.job_key(job, "guest.output")))

    async def asked(topic: str, streaming: bool) -> tuple[str, ...]:
        request = payload(topic, job, token)
        return tuple(
            [
                await ask(userid, lambda handle: got(handle, topic, streaming, request))
                for userid in (bus.owner, first, second)
            ]
        )

    return {topic: await asked(topic, each) for topic, each in sorted(bus.topics().items())}


def long_play(command: object, environment: object) -> TaskBehavior:
    return TaskBehavior(seconds=1000, stubborn=True)


def test_each_topic_has_its_answers_for_owner_user_and_stranger() -> None:
    """A topic that is not in the table wants a decision first."""

    async def main() -> Any:
        async with opened(ClusterShape(rabbits=1), long_play) as world:
            world.config = GUESTS

            async def life(control: Control) -> Any:
                bus = control.instance.bus
                found = await told(
                    world, control, bus.owner + 1, bus.owner + 2,
                    lambda userid, action: action(bus.handle(userid)),
                )  # fmt: skip
                await world.kill_everything()
                return found

            return await world.live(life)

    assert virtual.run(main()) == WHAT_EACH_GETS


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_the_socket_gives_each_real_user_the_same() -> None:
    first, second = users.userids()

    async def main(place: Path) -> Any:
        def asking(userid: int, action: Callable[[Handle], Awaitable[str]]) -> str:
            async def connected() -> str:
                async with asyncio.timeout(120), connect(place / "local") as handle:
                    return await action(handle)

            answer = users.acting_as(userid, lambda: asyncio.run(connected()))
            return str(answer)

        async def ask(userid: int, action: Callable[[Handle], Awaitable[str]]) -> str:
            return await asyncio.to_thread(asking, userid, action)

        async with opened(ClusterShape(rabbits=1), long_play) as world:
            world.config = GUESTS
            world.clock = SystemClock()

            async def life(control: Control) -> Any:
                access = AccessPolicy(allow_guests=True)
                serving = asyncio.ensure_future(
                    server.serve(control.instance.bus, place / "local", access)
                )
                found = await told(world, control, first, second, ask)
                serving.cancel()
                await asyncio.wait({serving})
                await world.kill_everything()
                return found

            return await world.live(life)

    with users.common_ground() as place:
        assert asyncio.run(main(place)) == WHAT_EACH_GETS
