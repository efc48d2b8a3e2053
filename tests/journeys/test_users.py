"""Two ordinary users on root's instance: each runs as himself, and reaches what is his."""

import asyncio
import base64
import errno
import importlib
import io
import json
import os
import pwd
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import users
from tests.journeys.conftest import Cluster, running, wait_for
from tests.node.usermounting import mount_dead
from warren.base import mountinfo
from warren.base.processes import parents
from warren.cli import main as cli
from warren.daemons import munged
from warren.daemons.statedir import lock_holder
from warren.rfc import eventlog, fluid, jobspec, signed_request, treeobj
from warren.rpc import munge
from warren.rpc.client import connect
from warren.rpc.message import RpcError

pytestmark = [
    pytest.mark.skipif(why is not None, reason=str(why))
    for why in (users.why_not(), users.without_munge())
]


@dataclass
class User:
    """A user who talks to the instance under their own name."""

    cluster: Cluster
    userid: int
    munge: Path
    home: Path
    """Where he may write."""

    def asked(self, topic: str, payload: dict[str, Any]) -> Any:
        """Return an answer, or the errnum and the words of a refusal."""

        async def asking() -> Any:
            async with asyncio.timeout(120), connect(self.cluster.state.socket) as handle:
                try:
                    return await handle.rpc(topic, payload)
                except RpcError as error:
                    return [error.errnum, str(error)]

        return users.acting_as(self.userid, lambda: asyncio.run(asking()))

    def streamed(self, topic: str, payload: dict[str, Any]) -> Any:
        """Return the first answer of a stream, or its refusal."""

        async def asking() -> Any:
            async with asyncio.timeout(120), connect(self.cluster.state.socket) as handle:
                try:
                    return await anext(handle.stream(topic, payload))
                except RpcError as error:
                    return [error.errnum, str(error)]

        return users.acting_as(self.userid, lambda: asyncio.run(asking()))

    def signed(self, *command: str, **attributes: Any) -> str:
        """Return a request of his, signed by him."""
        spec = jobspec.make(
            list(command),
            nodes=1,
            tasks=None,
            cores=1,
            exclusive=False,
            duration=attributes.pop("duration", 0.0),
            cwd=attributes.pop("cwd", str(self.home)),
            environment={"PATH": os.environ["PATH"], "MINE": "yes"},
            name=None,
            attributes=attributes,
        )
        text = json.dumps(spec).encode()
        # The machine of this one may have no munged.
        found = munge.system_munge(str(self.munge))
        token = users.acting_as(self.userid, lambda: munge.wrap(text, self.userid, found))
        assert isinstance(token, str)
        return token

    def submit(self, *command: str, **attributes: Any) -> str:
        answer = self.asked("job-ingest.submit", {"J": self.signed(*command, **attributes)})
        assert isinstance(answer, dict), answer
        return fluid.f58(answer["id"])

    def about(self, topic: str, job: str, **more: Any) -> Any:
        return self.asked(topic, {"id": fluid.parse(job), **more})

    def output(self, job: str) -> str:
        """Return what his job has printed, when it is over."""
        self.cluster.wait_event(job, "clean")
        found = self.about("job-info.lookup", job, keys=["guest.output"])
        events = eventlog.decode(found["guest.output"])
        return "".join(str(event.context.get("data", "")) for event in events)


@pytest.fixture(scope="module")
def ground() -> Iterator[Path]:
    with users.common_ground() as ground:
        yield ground


@pytest.fixture(scope="module")
def munge_socket(ground: Path) -> Iterator[Path]:
    with munged.running(ground / "munge") as socket:
        yield socket


@pytest.fixture(scope="module")
def common(ground: Path, munge_socket: Path) -> Iterator[Cluster]:
    """A cluster that lets guests in."""
    config = ground / "config.toml"
    config.write_text(
        f'[access]\nallow-guest-user = true\n[sign.munge]\nsocket-path = "{munge_socket}"\n'
    )
    yield from running(Cluster(ground, "--rabbits", "1", "--config", str(config)))


def user(cluster: Cluster, userid: int, munge_socket: Path) -> User:
    home = cluster.shared.parent / f"home-{userid}"
    if not home.exists():
        home.mkdir()
        os.chown(home, userid, userid)
    return User(cluster, userid, munge_socket, home)


@pytest.fixture
def one(common: Cluster, munge_socket: Path) -> User:
    return user(common, users.userids()[0], munge_socket)


@pytest.fixture
def other(common: Cluster, munge_socket: Path) -> User:
    return user(common, users.userids()[1], munge_socket)


def over(cluster: Cluster, job: str) -> dict[str, Any]:
    """Wait for a job's end, and return its attributes."""
    cluster.wait_event(job, "clean")
    return cluster.job(job)


# Who one is


def test_tasks_run_as_their_user_and_with_nothing_of_roots(one: User, other: User) -> None:
    """Statement 003.9: in a multi-user instance shells are started with guest credentials."""
    script = """
        id -u; id -g; id -G; umask; ulimit -c; pwd; echo $MINE; touch made
        awk '/^(CapPrm|CapEff|CapAmb|NoNewPrivs)/ {print $2}' /proc/self/status
        echo /proc/self/fd/* | sed "s:/proc/self/fd/$PMI_FD ::"
        cat /proc/$PPID/environ; cat /proc/$PPID/maps; ls /proc/$PPID/fd
        env | sed 's/=.*//' | grep -v -e FLUX -e PMI -e PWD -e SHLVL -e OLDPWD -e ^_$ | sort
    """
    for each in (one, other):
        said = each.output(each.submit("sh", "-c", script)).splitlines()

        account = pwd.getpwuid(each.userid)
        groups = " ".join(map(str, os.getgrouplist(account.pw_name, account.pw_gid)))
        assert said[:7] == [
            str(each.userid), str(account.pw_gid), groups, "0022", "0", str(each.home), "yes"
        ]  # fmt: skip
        nothing = "0" * 16
        assert sorted(said[7:11]) == ["0", nothing, nothing, nothing]
        # The last one is the directory itself.
        assert said[11].split() == [f"/proc/self/fd/{number}" for number in (0, 1, 2, 3)]
        refused = [line for line in said[12:] if "Permission denied" in line]
        assert len(refused) == 3
        assert [line for line in said[12:] if line not in refused] == ["MINE", "PATH"]
        made = each.home / "made"
        assert made.stat().st_uid == each.userid
        assert stat.S_IMODE(made.stat().st_mode) == 0o644


def test_a_user_has_storage_of_his_own(one: User) -> None:
    script = 'cd "$DW_JOB_scratch" && touch mine && stat -c %u mine'
    job = one.submit("sh", "-c", script, dw="#DW jobdw type=xfs capacity=64MiB name=scratch")

    assert one.output(job) == f"{one.userid}\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_copies_that_a_users_job_asks_for_are_made_as_him(one: User, other: User) -> None:
    """Neither what he may not read nor where he may not write, whatever leads there."""
    shared, secret = one.cluster.shared, one.cluster.shared / "secret"
    secret.mkdir(mode=0o700)
    (secret / "text").write_text("root's")
    own = shared / "own"
    own.mkdir()
    os.chown(own, one.userid, one.userid)
    body = '{"computeName": "%s", "sourcePath": "%s", "destinationPath": "%s"}'
    script = f"""
        ask() {{
            curl -sS --cacert $TLS_CERT_PATH -H "Authorization: Bearer $DW_WORKFLOW_TOKEN" \
                -H 'Accepts-version: 1.0' "$@"
        }}
        url=https://$NNF_CONTAINER_LAUNCHER:$NNF_CONTAINER_PORTS
        copy() {{
            name=$(printf '{body}' "$(hostname)" "$1" "$2" | ask -d @- $url/trial)
            ask "$url/status/${{name#name=}}?maxWaitSecs=-1" | sed 's/.*"status":"//; s/".*//'
        }}
        cd "$DW_JOB_fast"; echo mine > mine; ln -s {secret} way; ln -s {shared} up
        copy "$PWD/mine" {own}/
        copy {secret}/text "$PWD/stolen"
        copy "$PWD/way/text" {own}/stolen
        copy "$PWD/mine" {shared}/mine
        copy "$PWD/mine" "$PWD/up/mine"
        ls
    """
    fast = "#DW jobdw type=gfs2 capacity=64MiB name=fast requires=copy-offload"
    job = one.submit("sh", "-c", script, dw=fast)
    said = one.output(job).splitlines()
    assert said == ["success", *["failed"] * 4, "mine", "up", "way"]
    assert (own / "mine").read_text() == "mine\n"
    assert (own / "mine").stat().st_uid == one.userid
    assert [each.name for each in own.iterdir()] == ["mine"]
    assert not (shared / "mine").exists()
    assert over(one.cluster, job)["exception_note"].count("data movement failed") == 1
    number = fluid.parse(job)
    assert other.asked("workflow.token", {"id": number})[0] != 0


def test_storage_that_a_user_shares_lets_in_those_users_and_no_others(
    one: User, other: User
) -> None:
    """Issue 15, ADR 057: with the owner's consent, without a chmod, and until it is taken back."""
    use = "#DW persistentdw name=shared"

    def ran(user: User, script: str) -> list[str]:
        words = f'cd "$DW_PERSISTENT_shared" && {script}'
        return user.output(user.submit("sh", "-c", words, dw=use)).splitlines()

    def share(**change: Any) -> Any:
        return one.asked("persistent.share", {"name": "shared", **change})

    def is_refused(user: User) -> bool:
        signed = user.signed("true", dw=use)
        return "is another user's" in str(user.asked("job-ingest.submit", {"J": signed}))

    make = "#DW create_persistent type=xfs capacity=64MiB name=shared"
    over(one.cluster, one.submit("true", dw=make))
    assert ran(one, "echo text > mine; stat -c %a .") == ["700"]
    assert is_refused(other)
    for topic in ("share", "destroy"):
        number, words = other.asked(f"persistent.{topic}", {"name": "shared"})
        assert number == errno.EPERM
        assert "only that user" in words
    assert other.asked("persistent.list", {}) == {"persistent": []}

    account = pwd.getpwuid(other.userid)
    for others in ({"users": [other.userid]}, {"groups": [account.pw_gid]}, {"everyone": True}):
        share(add=others)
        wait_for(lambda: not is_refused(other))
        found = ran(other, "cat mine; rm -f mine 2>/dev/null || echo kept; echo a > its && ls")
        assert found == ["text", "kept", "its", "mine"]
        # What is made there, the owner of the directory removes.
        assert ran(one, "rm -f its && ls") == ["mine"]
        share(remove=others)
        wait_for(lambda: is_refused(other))
        assert ran(one, "stat -c %a .") == ["700"]

    def is_gone() -> bool:
        # Jobs that were accepted above may use it yet.
        one.asked("persistent.destroy", {"name": "shared"})
        return bool(one.asked("persistent.list", {}) == {"persistent": []})

    wait_for(is_gone)


# What is whose


def test_no_user_reaches_anothers_job(one: User, other: User) -> None:
    job = one.submit("sleep", "60")
    other.cluster.wait_event(job, "start")
    guest = f"job-{fluid.parse(job)}"
    watched = {"id": fluid.parse(job), "path": "guest.output"}
    theirs = "the job is another user's"

    refused: dict[str, dict[str, Any]] = {
        "job-manager.raise": {"type": "cancel", "severity": 0},
        "job-manager.kill": {"signum": signal.SIGTERM},
        "job-manager.memo": {"memo": {"mine": 1}},
        "job-info.lookup": {"keys": ["J"]},
    }
    for topic, more in refused.items():
        assert other.about(topic, job, **more) == [errno.EPERM, theirs]
    assert other.asked("kvs.lookup", {"namespace": guest, "key": "exec.eventlog"})[0] == errno.EPERM
    assert other.asked("kvs.lookup", {"key": "resource.R"})[0] == errno.EPERM
    assert other.streamed("job-info.eventlog-watch", watched) == [errno.EPERM, theirs]
    # Who holds up whom, all users may see.
    assert other.about("job-list.list-id", job)["job"]["userid"] == one.userid

    assert [each["id"] for each in one.asked("job-list.list", {})["jobs"]][:1] == [fluid.parse(job)]
    assert one.about("job-manager.raise", job, type="cancel", severity=0) == {}
    assert over(one.cluster, job)["exception_type"] == "cancel"


def test_a_guest_finds_the_cluster_and_nothing_else_of_its_directory(one: User) -> None:
    state = one.cluster.state

    def looks() -> list[Any]:
        told: list[Any] = [state.status()]
        for path in (state.path, *(Path(each) for each in entries)):
            try:
                os.listdir(path) if path.is_dir() else path.read_bytes()
            except OSError as error:
                told.append(error.errno)
            else:
                told.append(str(path))
        return told

    # What is /etc/hosts on nodes is for all who are there, and so is what vouches for a service.
    known = (state.hosts_file, state.offload_certificate_file)
    entries = [
        str(entry) for entry in state.path.iterdir() if not entry.is_socket() and entry not in known
    ]
    assert users.acting_as(one.userid, looks) == [{}, *[errno.EACCES] * (1 + len(entries))]


WITH_THEM = (
    *(f"warren.cli.cluster.{name}" for name in ("up", "doctor")),
    *("warren.cli.job.listing", "warren.cli.resource", "warren.cli.storage"),
    *("warren.kube.http", "warren.daemons.doctor", "warren.daemons.up"),
)
"""What the commands load when they are used, and a user may not find where we have it."""


def commanded(user: User, *arguments: str) -> tuple[int, str]:
    """Run a `warren` command as a user; return its exit code and its words."""
    for module in WITH_THEM:
        importlib.import_module(module)

    def life() -> tuple[int, str]:
        sys.argv[1:] = [*arguments]
        os.environ["WARREN_STATEDIR"] = str(user.cluster.state.path)
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            try:
                cli.main()
            except SystemExit as end:
                return int(end.code or 0), said.getvalue()
        return 0, said.getvalue()

    code, words = users.acting_as(user.userid, life)
    return code, words


def test_the_command_line_serves_a_guest_as_far_as_he_may_go(one: User) -> None:
    job = one.submit("true")
    over(one.cluster, job)
    state = one.cluster.state.path

    code, words = commanded(one, "jobs", "-a")
    assert (code, job in words) == (0, True)
    assert commanded(one, "resource", "list")[0] == 0
    # What is the owner's is refused in a sentence, by each command.
    refused = f"warren: The state directory {state} is user 0's, who alone may do this: "
    owners = (["workflows"], ["rabbits"], ["doctor"], ["down"], ["up"], ["config", "reload"])
    for arguments in owners:
        code, words = commanded(one, *arguments)
        assert (code, words[: len(refused)]) == (1, refused)
    code, words = commanded(one, "resource", "drain", "compute-00")
    assert (code, words) == (1, "warren: resource.drain is for the instance owner\n")


# What is not believed


def refusal(cluster: Cluster, job: str) -> str:
    """Return why a job has not run."""
    ended = over(cluster, job)
    assert (ended["success"], ended["exception_type"]) == (False, "exec")
    return str(ended["exception_note"])


def test_a_request_is_taken_from_its_signer_alone(one: User, other: User) -> None:
    token = one.signed("id", "-u")
    words = f"signer={one.userid} != requestor={other.userid}"

    assert other.asked("job-ingest.submit", {"J": token}) == [errno.EPERM, words]
    unsigned = signed_request.wrap(b"{}", other.userid)
    words = "only instance owner can use sign-type=none"
    assert other.asked("job-ingest.submit", {"J": unsigned}) == [errno.EPERM, words]


def test_what_was_not_signed_does_not_run(one: User, other: User) -> None:
    header, payload, signature = one.signed("touch", "signed").split(".")
    evil = base64.b64decode(payload).replace(b'"signed"', b'"forged"')
    forged = ".".join([header, base64.b64encode(evil).decode(), signature])
    job = fluid.f58(one.asked("job-ingest.submit", {"J": forged})["id"])

    note = f"the job does not run as user {one.userid}: the signature is not over this request"
    assert refusal(one.cluster, job) == note
    # And with the signature of another user over the right words.
    _, theirs, _ = one.signed("touch", "forged").split(".")
    unsigned = f"{header}.{theirs}"
    found = munge.system_munge(str(other.munge))
    proof = signed_request.credential_payload(unsigned)
    signature = users.acting_as(other.userid, lambda: found.encode(proof))
    job = fluid.f58(one.asked("job-ingest.submit", {"J": f"{unsigned}.{signature}"})["id"])
    assert f"user {other.userid} has signed it" in refusal(one.cluster, job)
    assert not list(one.home.glob("forged"))


def test_a_command_that_was_changed_in_the_store_is_not_run(one: User) -> None:
    """The owner may change what the instance keeps of a job, but not what its user has signed."""
    blocker = one.cluster.submit("-N4", "sleep", "60")
    one.cluster.wait_event(blocker, "start")
    job = one.submit("sh", "-c", "echo signed")
    key = f"{fluid.kvs(fluid.parse(job))}.jobspec"

    async def change() -> None:
        async with connect(one.cluster.state.socket) as handle:
            found = await handle.rpc("kvs.lookup", {"key": key})
            changed = treeobj.read_val(found["val"]).replace(b"echo signed", b"echo forged")
            assert b"forged" in changed
            operation = {"key": key, "dirent": treeobj.val(changed)}
            await handle.rpc("kvs.commit", {"ops": [operation]})

    asyncio.run(change())
    one.cluster("cancel", blocker)
    assert one.output(job) == "signed\n"


# What is left


LEAVING = {
    "daemon": "setsid sh -c 'setsid env -i sleep 1000 &' >&- 2>&-",
    "shell killed": "(setsid env -i sleep 1000 &) ; kill -9 $PPID; sleep 1000",
    "bomb": "ulimit -u 50; f() { sleep 0.1; f & f & wait; }; f; sleep 1000",
}


@pytest.mark.parametrize("leaving", LEAVING.values(), ids=LEAVING)
def test_nothing_that_a_user_leaves_behind_outlives_his_job(other: User, leaving: str) -> None:
    job = other.submit("sh", "-c", leaving, duration=2.0)
    over(other.cluster, job)

    assert of_user(other.userid) == []


def of_user(userid: int) -> list[int]:
    """Return the living processes of a user who has nothing else running."""
    found = []
    for process in parents():
        with suppress(OSError):
            told = Path(f"/proc/{process}/status").read_text()
            if f"\nUid:\t{userid}\t" in told:
                found.append(process)
    return found


@pytest.mark.parametrize("whole", [False, True], ids=["the helper", "the instance and the helper"])
def test_no_process_of_a_user_is_left_when_any_part_is_killed(other: User, whole: bool) -> None:
    cluster = other.cluster
    job = other.submit("sh", "-c", "setsid env -i sleep 1000 & sleep 1000")
    cluster.wait_event(job, "start")
    wait_for(lambda: len(of_user(other.userid)) == 4)
    helper = lock_holder(cluster.state.shells_lock)
    assert helper
    if whole:
        cluster.kill()
    os.kill(helper, signal.SIGKILL)
    if whole:
        cluster.up()

    ended = over(cluster, job)
    assert "shells were lost" in str(ended["exception_note"])
    assert of_user(other.userid) == []


def test_what_a_user_mounts_over_a_common_directory_goes_with_the_last_job_there(
    one: User, other: User
) -> None:
    cluster = other.cluster
    common, end = cluster.shared / "group", other.home / "end"
    common.mkdir()
    (common / "file").touch()
    script = f'mkdir "$FLUX_JOB_TMPDIR/m"; until [ -e {end} ]; do sleep 0.05; done'
    job = other.submit("sh", "-c", script, dw="#DW jobdw type=xfs capacity=64MiB name=scratch")
    cluster.wait_event(job, "start")
    node = cluster.job(job)["nodelist"]
    holder = int((cluster.state.nodes / node / "holder").read_text())

    def own_points() -> set[str]:
        points = {each.point for each in mountinfo.read(Path(f"/proc/{holder}"))}
        return {each for each in points if each == str(common) or "/jobtmp-" in each}

    wait_for(lambda: any(Path(each, "m").is_dir() for each in own_points()))
    [directory] = own_points()
    mount_dead(holder, other.userid, common, f"{directory}/m")
    assert own_points() == {str(common), directory, f"{directory}/m"}
    end.touch()
    over(cluster, job)
    wait_for(lambda: not own_points())
    assert one.output(one.submit("ls", str(common))) == "file\n"


# Directories of jobs


def test_no_user_makes_anothers_directory_first(one: User, other: User) -> None:
    tmp = one.cluster.state.tmp

    def makes() -> Any:
        try:
            (tmp / "jobtmp-0-anybody").mkdir()
        except OSError as error:
            return error.errno
        return None

    assert users.acting_as(other.userid, makes) == errno.EACCES
    job = one.submit("sh", "-c", 'cd $FLUX_JOB_TMPDIR && touch made && stat -c "%u %a" .')
    assert one.output(job) == f"{one.userid} 700\n"
    wait_for(lambda: not list(tmp.iterdir()))


def test_a_tree_without_end_does_not_stop_the_helper_that_removes_it(one: User) -> None:
    nest = "perl -e 'for (1..3000) { mkdir q(d); chdir q(d) }'"
    script = f"cd $FLUX_JOB_TMPDIR && {nest}; kill -9 $PPID; sleep 1000"
    helper = lock_holder(one.cluster.state.shells_lock)
    job = one.submit("sh", "-c", script)
    one.cluster.wait_event(job, "clean")

    wait_for(lambda: not list(one.cluster.state.tmp.iterdir()))
    assert lock_holder(one.cluster.state.shells_lock) == helper
