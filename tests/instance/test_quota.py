"""What one user's jobs hold of the store: bounded together, and no other user feels it."""

import errno
from typing import Any

import orjson
import pytest

from tests.instance.lives import Life, alive, spec
from tests.instance.parts import GUEST, OWNER, refused, virtually
from warren.instance import config, keys
from warren.instance.kvs import create_namespace, graft
from warren.instance.kvs.quota import BYTES_PER_JOB, Quota
from warren.journal import MemoryJournal
from warren.rfc import signed_request, treeobj
from warren.rfc.fluid import JobId
from warren.rpc.message import Handle, RpcError

STRANGER = GUEST + 1
LIMITED = config.parse(f"access.allow-guest-user = true\nkvs.user-limit = {2**20}")
LARGE = {"environment": {"A": "x" * 300_000}}
"""Of which two fit, each about 400 KiB in its request's base64."""


async def submitted(life: Life, userid: int, **options: Any) -> JobId:
    text = orjson.dumps(spec(**options))
    proven = f"{signed_request.signed_part(text, userid, 'munge')}.MUNGE:AAAA:"
    token = signed_request.wrap(text, OWNER) if userid == OWNER else proven
    answer = await life.bus.handle(userid).rpc("job-ingest.submit", {"J": token})
    return JobId(answer["id"])


async def written(life: Life, job: JobId, count: int, who: int = GUEST, writer: str = "") -> None:
    ops = [{"key": "a", "flags": 0, "dirent": treeobj.val(bytes(count))}]
    request = {"namespace": keys.guest_namespace(job), "ops": ops}
    await life.bus.handle(who).rpc("kvs.commit", {**request, "writer": writer, "sequence": 1})


def test_bytes_are_counted_by_user_and_given_back_by_job() -> None:
    quota = Quota(100)
    quota.charge("job-1", 1, 60)
    quota.charge("job-2", 1, 30)
    quota.charge("job-3", 2, 100)
    with pytest.raises(RpcError) as failed:
        quota.charge("job-2", 1, 11)
    assert failed.value.errnum == errno.ENOSPC
    quota.release("job-1")
    quota.charge("job-2", 1, 70)
    assert quota.bytes_of("job-2") == 100
    for job in ("job-1", "job-2", "job-3", "job-4"):
        quota.release(job)
    assert (quota._bytes_by_user, quota._charges_by_namespace) == ({}, {})


def test_a_user_takes_no_more_than_half_of_what_the_disk_has_left() -> None:
    """However large the limit is: the disk is full for all users."""
    room = 2**20
    quota = Quota(2**30, lambda: room)
    quota.charge("job-1", 1, 2**19)
    with pytest.raises(RpcError) as failed:
        quota.charge("job-1", 1, 1)
    assert str(failed.value) == (
        "jobs of user 1 hold 512 KiB of the 512 KiB that each user has while the disk is as full "
        "as now: ask the owner to purge those that are over"
    )
    quota.charge("job-2", 2, 2**18)
    room = 0
    # What runs comes to its end.
    quota.charge("job-1", 1, 2**20, is_running=True)
    with pytest.raises(RpcError):
        quota.charge("job-1", 1, 2**24, is_running=True)
    room = 2**23
    quota.charge("job-1", 1, 2**20)


def test_many_jobs_of_a_user_fill_a_full_disk_no_more_than_a_few() -> None:
    room = 2**30
    quota = Quota(2**40, lambda: room)
    for number in range(9):
        quota.charge(f"job-{number}", 1, 2**22)  # what they were submitted with
    room = 0
    for number in range(2):
        quota.charge(f"job-{number}", 1, 2**23, is_running=True)
    quota.charge("job-2", 1, 2**23, is_running=True)
    for number in range(3, 8):
        quota.charge(f"job-{number}", 1, 2**20, is_running=True)
        with pytest.raises(RpcError):
            quota.charge(f"job-{number}", 1, 2**22, is_running=True)
    # Others end theirs, and so does this user, when it has let some be purged.
    quota.charge("job-9", 2, 2**24, is_running=True)
    for number in range(3):
        quota.release(f"job-{number}")
    quota.charge("job-7", 1, 2**22, is_running=True)
    for number in range(10):
        quota.release(f"job-{number}")
    assert quota._written_while_running == {}


@virtually
async def test_one_users_requests_fill_its_own_part_and_no_others() -> None:
    async with alive(config=LIMITED, generous=False) as life:
        for _ in range(2):
            await submitted(life, GUEST, **LARGE)
        with pytest.raises(RpcError) as failed:
            await submitted(life, GUEST, **LARGE)
        assert failed.value.errnum == errno.ENOSPC
        assert str(failed.value) == (
            f"jobs of user {GUEST} hold 794 KiB of the 1.00 MiB that each user has "
            "(kvs.user-limit): ask the owner to purge those that are over"
        )
        # It was not taken, and counts for nothing.
        assert len(life.manager.active()) == 2
        await submitted(life, GUEST)
        for _ in range(2):
            await submitted(life, STRANGER, **LARGE)
        for _ in range(4):
            await submitted(life, OWNER, **LARGE)


@virtually
async def test_what_is_written_for_all_of_a_users_jobs_is_counted_together() -> None:
    async with alive(config=LIMITED, generous=False) as life:
        jobs = [await submitted(life, GUEST) for _ in range(2)]
        await life.kvs.commit([create_namespace(keys.guest_namespace(job), GUEST) for job in jobs])

        await written(life, jobs[0], 600_000)
        assert await refused(written(life, jobs[1], 600_000)) == errno.ENOSPC
        await written(life, jobs[1], 600_000, OWNER)
        memo: dict[str, Any] = {"id": jobs[1]}
        adding = life.bus.handle(GUEST)
        held = life.kvs.quota.bytes_of(keys.guest_namespace(jobs[1]))
        whole: dict[str, Any] = {f"b{n}": "x" * 7_000 for n in range(9)}
        for each in ({name: text} for name, text in whole.items()):
            await adding.rpc("job-manager.memo", {"id": jobs[1], "memo": each})
        counted = life.kvs.quota.bytes_of(keys.guest_namespace(jobs[1]))
        assert counted > held + 9 * 7_000
        # What is refused for its size counts for nothing.
        assert await refused(_often(1, adding, {**memo, "memo": {"c": "x" * 7_000}})) == errno.EFBIG
        assert life.kvs.quota.bytes_of(keys.guest_namespace(jobs[1])) == counted
        again = {**memo, "memo": {"b0": "x" * 7_000}}
        assert await refused(_often(100, adding, again)) == errno.ENOSPC
        # The way out is never closed.
        await life.bus.handle(GUEST).rpc("job-manager.raise", {"id": jobs[1], "type": "cancel"})


async def _often(times: int, user: Handle, memo: dict[str, Any]) -> None:
    for _ in range(times):
        await user.rpc("job-manager.memo", memo)


@virtually
async def test_jobs_that_are_over_count_until_they_are_purged_and_over_restarts() -> None:
    journal = MemoryJournal()
    async with alive(journal, config=LIMITED, generous=False) as life:
        waits = await submitted(life, GUEST, **LARGE)
        held = life.kvs.quota.bytes_of(keys.guest_namespace(waits))
        assert held > 400_000 + BYTES_PER_JOB
    async with alive(journal, config=LIMITED) as life:
        assert life.kvs.quota.bytes_of(keys.guest_namespace(waits)) >= held
        await life.until(waits, "clean")
        over = await submitted(life, GUEST, **LARGE)
        await life.until(over, "clean")
    async with alive(journal, config=LIMITED) as life:
        assert await refused(submitted(life, GUEST, **LARGE)) == errno.ENOSPC
        await life.bus.handle().rpc("job-manager.purge-id", {"id": over, "force": True})
        assert life.kvs.quota.bytes_of(keys.guest_namespace(over)) == 0
        await submitted(life, GUEST, **LARGE)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("writer", ["", "shell-0"])
@virtually
async def test_what_a_job_has_printed_does_not_hide_what_is_kept_of_its_storage(
    writer: str, restarts: bool
) -> None:
    journal = MemoryJournal()
    async with alive(journal, config=LIMITED, generous=False) as life:
        job = await submitted(life, GUEST)
        namespace = keys.guest_namespace(job)
        await life.kvs.commit([create_namespace(namespace, GUEST)])
        await written(life, job, 500_000, writer=writer)
        held = life.kvs.quota.bytes_of(namespace)
        if not restarts:
            await _end_with_record(life, job, held)
    if restarts:
        async with alive(journal, config=LIMITED, generous=False) as life:
            await _end_with_record(life, job, held)


async def _end_with_record(life: Life, job: JobId, held: int) -> None:
    namespace = keys.guest_namespace(job)
    await life.kvs.commit([graft(keys.job_key(job, "guest"), namespace)])
    record = {"key": keys.job_key(job, "rabbit_workflow"), "flags": 0}
    record["dirent"] = treeobj.val(bytes(400_000))
    await life.bus.handle(OWNER).rpc("kvs.commit", {"ops": [record]})
    await life.cancel(job)
    await life.until(job, "clean")

    assert held > 500_000
    assert 390_000 < life.kvs.quota.bytes_of(namespace) - held < 410_000


@virtually
async def test_what_services_have_written_of_a_job_counts_from_its_end_and_refuses_nothing() -> (
    None
):
    journal = MemoryJournal()
    async with alive(journal, config=LIMITED, generous=False) as life:
        jobs = [await submitted(life, userid) for userid in (GUEST, OWNER)]
        for job in jobs:
            for key in ("rabbit_workflow", "data.dws.timing"):
                record = {"key": keys.job_key(job, key), "flags": 0}
                record["dirent"] = treeobj.val(bytes(600_000))
                await life.bus.handle(OWNER).rpc("kvs.commit", {"ops": [record]})
            await life.cancel(job)
            await life.until(job, "clean")
        held = [life.kvs.quota.bytes_of(keys.guest_namespace(job)) for job in jobs]
        assert held[0] > 1_200_000 + BYTES_PER_JOB
        assert held[1] == 0
        assert await refused(submitted(life, GUEST)) == errno.ENOSPC
    async with alive(journal, config=LIMITED) as life:
        assert life.kvs.quota.bytes_of(keys.guest_namespace(jobs[0])) == held[0]


@virtually
async def test_a_job_that_is_refused_counts_for_nothing() -> None:
    async with alive(config=LIMITED, generous=False) as life:
        dependencies = [{"scheme": "nobody-serves-it", "value": "1"}]
        for _ in range(5):
            attributes = {"dependencies": dependencies}
            assert await refused(
                submitted(life, GUEST, attributes=attributes, **LARGE)
            ) == errno.EINVAL  # fmt: skip
        await submitted(life, GUEST, **LARGE)


@virtually
async def test_what_is_small_as_a_text_and_large_in_memory_is_counted_as_it_is_there() -> None:
    """Else one user's jobs would take the memory of all, within the limit."""
    async with alive(config=LIMITED, generous=False) as life:
        assert (
            await refused(submitted(life, GUEST, attributes={"a": [{}] * 15_000})) == errno.ENOSPC
        )
        job = await submitted(life, GUEST)
        await life.kvs.commit([create_namespace(keys.guest_namespace(job), GUEST)])
        writing = life.bus.handle(GUEST)

        deep = [{"key": f"{each}{'.a' * 60}", "flags": 0, "dirent": treeobj.val(b"")}
                for each in range(20)]  # fmt: skip
        before = life.kvs.quota.bytes_of(keys.guest_namespace(job))
        await writing.rpc("kvs.commit", {"namespace": keys.guest_namespace(job), "ops": deep})
        # Each name is a directory of its own.
        assert life.kvs.quota.bytes_of(keys.guest_namespace(job)) - before > 20 * 60 * 200

        held = life.kvs.quota.bytes_of(keys.guest_namespace(job))
        memo = {"id": job, "memo": {str(each): {} for each in range(500)}}
        await writing.rpc("job-manager.memo", memo)
        assert life.kvs.quota.bytes_of(keys.guest_namespace(job)) - held > 500 * 64


@virtually
async def test_what_small_things_take_is_counted_after_a_restart_too() -> None:
    journal = MemoryJournal()
    async with alive(journal, config=LIMITED, generous=False) as life:
        job = await submitted(life, GUEST, attributes={"a": [{}] * 3000})
        await life.kvs.commit([create_namespace(keys.guest_namespace(job), GUEST)])
        tree = {"a": {"type": "dir", "ver": 1, "data": {
            str(each): {"type": "dir", "ver": 1, "data": {"b": treeobj.val(b"")}}
            for each in range(200)
        }}}  # fmt: skip
        ops = [{"key": key, "flags": 0, "dirent": each} for key, each in tree.items()]
        await life.bus.handle(GUEST).rpc(
            "kvs.commit", {"namespace": keys.guest_namespace(job), "ops": ops}
        )
        held = life.kvs.quota.bytes_of(keys.guest_namespace(job))
        assert held > 3000 * 64 + 200 * 300
    async with alive(journal, config=LIMITED) as life:
        assert life.kvs.quota.bytes_of(keys.guest_namespace(job)) > 3000 * 64 + 200 * 300
