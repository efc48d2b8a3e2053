"""The hook in a real PBS: two moms, registered through qmgr, and the same table of outcomes."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.interop import openpbs
from tests.interop.openpbs import MOMS, SERVER, USER, Pbs
from tests.wlm.pbs import table
from tests.wlm.pbs.atoms import Atom, Behaviour, answers, behaving, says
from tests.wlm.pbs.table import COMPLAINS, OFFLINE, RUNS, Case

pytestmark = pytest.mark.skipif(bool(openpbs.lacking()), reason=str(openpbs.lacking()))

FIRST, SECOND = MOMS
HOOK = "cray_atom"
REMOVED = f"offlined by hook '{HOOK}' due to hook error"


class Site:
    """A site that has registered the hook, and ATOMs that behave as a test says."""

    def __init__(self, pbs: Pbs) -> None:
        self.pbs = pbs

    def socket(self, mom: str) -> Path:
        return self.pbs.directory / f"atom-{mom}.sock"

    def warren(self, host: str, *words: str) -> str:
        program = ["env", f"PYTHONPATH={Path(__file__).parents[2] / 'src'}", sys.executable]
        return self.pbs.run(host, [*program, "-m", "warren", "pbs", *words], check=False)

    def configure(self, **tunables: float) -> None:
        """Register the hook with a socket for each mom, and half a second for each request."""
        nodes = {m: {"unix_socket_file": self.pbs.inside(self.socket(m))} for m in MOMS}
        config = {
            "post_timeout": table.BRIEF,
            "delete_timeout": table.BRIEF,
            **tunables,
            "nodes": nodes,
        }
        path = self.pbs.directory / "config.json"
        path.write_text(json.dumps(config))
        said = self.warren(SERVER, "install", "--enable", "--config", self.pbs.inside(path))
        assert "is registered" in said
        self.delivered()

    def delivered(self) -> None:
        """Wait until every mom has of the hook what the server has."""

        def same() -> bool:
            server = self.pbs.home(SERVER) / "server_priv/hooks"
            return all(
                _content(server / f"{HOOK}{suffix}")
                == _content(self.pbs.home(mom) / "mom_priv/hooks" / f"{HOOK}{suffix}")
                for mom in MOMS
                for suffix in (".PY", ".CF", ".HK")
            )

        self.pbs.wait(same, "the hook at its moms")

    @contextmanager
    def behaving(self, **behaviours: list[Behaviour]) -> Iterator[dict[str, Atom]]:
        """Have moms' ATOMs behave; those that are not named answer that all is well."""
        with ExitStack() as stack:
            yield {
                mom: stack.enter_context(
                    behaving(self.socket(mom), behaviours.get(mom, [answers(200)]))
                )
                for mom in MOMS
            }

    def submit(self, *options: str, command: tuple[str, ...] = ("/bin/true",)) -> str:
        said = self.pbs.run(SERVER, ["qsub", *options, "--", *command], user=USER)
        return said.strip()

    def job(self, jobid: str) -> dict[str, str]:
        text = self.pbs.run(SERVER, ["qstat", "-fxw", jobid], check=False)
        return dict(re.findall(r"^\s+(\S+) = (.*)$", text, re.MULTILINE))

    def finished(self, jobid: str) -> dict[str, str]:
        found: dict[str, str] = self.pbs.wait(
            lambda: (told := self.job(jobid)).get("job_state") == "F" and told, f"{jobid}'s end"
        )
        return found

    def node(self, mom: str) -> dict[str, str]:
        text = self.pbs.run(SERVER, ["pbsnodes", mom])
        return dict(re.findall(r"^\s+(\S+) = (.*)$", text, re.MULTILINE))

    def offline(self, mom: str) -> bool:
        return "offline" in self.node(mom)["state"]

    def heal(self) -> None:
        """Take away what a job has left: itself, and vnodes that are offline."""
        for jobid in re.findall(r"^(\S+?)\.\S+ ", self.pbs.run(SERVER, ["qstat"]), re.MULTILINE):
            self.pbs.run(SERVER, ["qdel", "-W", "force", jobid], check=False)
        for mom in MOMS:
            if self.offline(mom):
                self.pbs.run(SERVER, ["pbsnodes", "-r", "-C", "", mom])
        self.pbs.wait(lambda: all(self.node(mom)["state"] == "free" for mom in MOMS), "free nodes")


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    # Not where pytest has its files: PBS's users come nowhere there.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        with Pbs(Path(directory) / "pbs") as pbs:
            site = Site(pbs)
            site.configure()
            yield site


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    yield running
    running.heal()


@pytest.mark.parametrize("case", table.BEGIN, ids=str)
def test_at_the_begin_of_a_job(case: Case, site: Site) -> None:
    before = len(site.pbs.log(FIRST))
    with site.behaving(**{FIRST: [*case.atom]}) as atoms:
        job = site.submit("-l", f"select=1:host={FIRST}")
        if case.outcome == RUNS:
            assert site.finished(job)["Exit_status"] == "0"
            expected = [*case.asked, "DELETE"]
        else:
            assert case.outcome == OFFLINE
            site.pbs.wait(lambda: site.offline(FIRST), "the vnode to go offline")
            assert site.node(FIRST)["comment"] == REMOVED
            assert site.job(job)["job_state"] == "Q"
            expected = [*case.asked]
        assert atoms[FIRST].methods == expected
        assert atoms[SECOND].methods == []
    log = site.pbs.log(FIRST)[before:]
    assert case.says in log
    assert "Traceback" not in log


@pytest.mark.parametrize("case", table.END, ids=str)
def test_at_the_end_of_a_job(case: Case, site: Site) -> None:
    before = len(site.pbs.log(FIRST))
    with site.behaving(**{FIRST: [answers(200), *case.atom]}) as atoms:
        job = site.submit("-l", f"select=1:host={FIRST}")
        assert site.finished(job)["Exit_status"] == "0"
        assert atoms[FIRST].methods == ["POST", *case.asked]
    log = site.pbs.log(FIRST)[before:]
    assert case.says in log
    assert (f"execjob_end request rejected by '{HOOK}'" in log) == (case.outcome == COMPLAINS)
    assert not site.offline(FIRST)


def test_every_mom_of_a_job_tells_its_own_atom_the_first_of_them_first(site: Site) -> None:
    with site.behaving() as atoms:
        job = site.submit("-l", "select=2:ncpus=1", "-l", "place=scatter:excl")
        site.finished(job)
        # The second mom's end is not waited for.
        site.pbs.wait(lambda: len(atoms[SECOND].asked) == 2, "the second mom's end")
    posts = {mom: atoms[mom].asked[0] for mom in MOMS}
    told = {"jobid": job, "uid": 20002, "exclusive": True}
    assert [posts[mom].body for mom in MOMS] == [told, told]
    assert posts[FIRST].moment < posts[SECOND].moment
    assert all(atoms[mom].methods == ["POST", "DELETE"] for mom in MOMS)


def test_a_mom_that_fails_goes_offline_alone_and_the_first_cleans_up(site: Site) -> None:
    with site.behaving(**{SECOND: [answers(401)]}) as atoms:
        site.submit("-l", "select=2:ncpus=1", "-l", "place=scatter")
        site.pbs.wait(lambda: site.offline(SECOND), "the second vnode to go offline")
        site.pbs.wait(lambda: len(atoms[FIRST].asked) == 2, "the first mom's end")
        assert atoms[FIRST].methods == ["POST", "DELETE"]
        assert atoms[SECOND].methods == ["POST"]
        assert not site.offline(FIRST)


def test_where_the_first_mom_fails_the_second_is_not_asked(site: Site) -> None:
    with site.behaving(**{FIRST: [answers(401)]}) as atoms:
        site.submit("-l", "select=2:ncpus=1", "-l", "place=scatter")
        site.pbs.wait(lambda: site.offline(FIRST), "the first vnode to go offline")
        assert (atoms[FIRST].methods, atoms[SECOND].methods) == (["POST"], [])
        assert not site.offline(SECOND)


def test_a_part_of_an_array_is_told_by_its_own_id(site: Site) -> None:
    with site.behaving() as atoms:
        job = site.submit("-J", "1-2", "-l", f"select=1:host={FIRST}")
        site.pbs.wait(lambda: len(atoms[FIRST].asked) == 4, "both parts' ends")
    number, _, server = job.partition("[]")
    parts = [f"{number}[{each}]{server}" for each in (1, 2)]
    posted = [asked.body["jobid"] for asked in atoms[FIRST].asked if asked.method == "POST"]
    deleted = {asked.path for asked in atoms[FIRST].asked if asked.method == "DELETE"}
    assert sorted(posted) == parts
    assert deleted == {
        f"/rm/v1/jobs/{each.replace('[', '%5B').replace(']', '%5D')}" for each in parts
    }


def test_exclusive_goes_by_what_the_server_says_of_the_vnode(site: Site) -> None:
    told = []
    place = site.pbs.home(FIRST) / "sharing"

    def is_told(sharing: str) -> bool:
        return bool(site.node(FIRST)["sharing"] == sharing)

    for sharing in ("default_shared", "force_excl", "ignore_excl"):
        place.write_text(f"$configversion 2\n{FIRST}: sharing = {sharing}\n")
        site.pbs.run(FIRST, ["pbs_mom", "-s", "insert", "sharing", site.pbs.inside(place)])
        _signal(site, FIRST, "HUP")
        site.pbs.wait(partial(is_told, sharing), "its sharing")
        site.pbs.run(FIRST, ["pbs_mom", "-s", "remove", "sharing"])
        with site.behaving() as atoms:
            for wish in ("shared", "excl"):
                job = site.submit("-l", f"select=1:host={FIRST}", "-l", f"place={wish}")
                site.finished(job)
        told += [asked.body["exclusive"] for asked in atoms[FIRST].asked if asked.body]
    _signal(site, FIRST, "HUP")
    assert told == [False, True, True, True, False, False]


def test_the_hook_ends_before_its_alarm_and_takes_its_registration_back(site: Site) -> None:
    site.configure(post_timeout=60, delete_timeout=60)
    site.pbs.qmgr(f"set hook {HOOK} alarm=3")
    try:
        site.delivered()
        before = len(site.pbs.log(FIRST))
        with site.behaving(**{FIRST: [says(b"", then="hang"), answers(204)]}) as atoms:
            site.submit("-l", f"select=1:host={FIRST}")
            site.pbs.wait(lambda: site.offline(FIRST), "the vnode to go offline")
            assert atoms[FIRST].methods == ["POST", "DELETE"]
        log = site.pbs.log(FIRST)[before:]
        assert "POST timed out" in log
        assert "alarm call" not in log
    finally:
        site.pbs.qmgr(f"set hook {HOOK} alarm=300")
        site.configure()


def test_a_user_whom_the_node_does_not_know_leaves_it_online(site: Site) -> None:
    strangers = site.pbs.directory / "strangers"
    known = (site.pbs.directory / "etc/passwd").read_text().splitlines(keepends=True)
    strangers.write_text("".join(line for line in known if not line.startswith(USER)))
    site.pbs.run(FIRST, ["mount", "--bind", site.pbs.inside(strangers), "/etc/passwd"])
    try:
        with site.behaving() as atoms:
            job = site.submit("-l", f"select=1:host={FIRST}")
            site.pbs.wait(lambda: site.job(job).get("job_state") == "H", "the job to be held")
            assert atoms[FIRST].methods == []
        assert not site.offline(FIRST)
    finally:
        site.pbs.run(FIRST, ["umount", "/etc/passwd"])


def test_a_mom_that_is_started_again_with_p_keeps_its_job_and_tells_of_its_end(site: Site) -> None:
    """Cray's tasks take a mom down, and the administrator brings it back.

    Seed: the PBS MoM should be restarted with the "-p" option to preserve running jobs
    """
    with site.behaving() as atoms:
        job = site.submit("-l", f"select=1:host={FIRST}", command=("/bin/sleep", "4"))
        site.pbs.wait(lambda: site.job(job).get("job_state") == "R", "the job to run")
        time.sleep(0.5)
        # It takes its lock along.
        pid = (site.pbs.home(FIRST) / "mom_priv/mom.lock").read_text().strip()
        _signal(site, FIRST, "INT")
        site.pbs.wait(
            lambda: site.pbs.run(FIRST, ["sh", "-c", f"[ -e /proc/{pid} ] || echo gone"]),
            "the mom's end",
        )
        site.pbs.run(FIRST, ["sh", "-c", "pbs_mom -p >/dev/null 2>&1 </dev/null"])
        ended = site.finished(job)
        assert (ended["Exit_status"], ended["run_count"]) == ("0", "1")
        assert atoms[FIRST].methods == ["POST", "DELETE"]


def test_a_job_of_a_real_pbs_is_registered_with_a_real_atomd(site: Site) -> None:
    with tempfile.TemporaryDirectory() as state:
        place = site.socket(FIRST)
        command = [
            sys.executable, "-m", "warren", "atomd", "--socket", str(place), "--statedir", state,
        ]  # fmt: skip
        atomd = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert atomd.stdout is not None
        try:
            assert "serving" in atomd.stdout.readline()
            before = len(site.pbs.log(FIRST))
            job = site.submit("-l", f"select=1:host={FIRST}")
            site.finished(job)
        finally:
            atomd.send_signal(signal.SIGTERM)
            _, log = atomd.communicate(timeout=120)
    assert "method=POST path=/rm/v1/jobs code=200" in log
    assert f"method=DELETE path=/rm/v1/jobs/{job} code=204" in log
    told = site.pbs.log(FIRST)[before:]
    assert f"{HOOK}:{job}:begin: Job ID registered" in told
    assert f"{HOOK}:{job}:end: Job ID deleted" in told


def test_what_is_registered_is_judged_and_repeating_changes_nothing(site: Site) -> None:
    with site.behaving():
        assert "NO" not in site.warren(SERVER, "status")
        assert "NO" not in site.warren(FIRST, "status")
        tried = site.warren(FIRST, "test")
        assert tried.count("  accepted\n") == 2
    assert "is registered as it is to be" in site.warren(SERVER, "install")
    assert "PBS lets only root" in site.warren(FIRST, "install")
    assert "refuses: " in site.warren(FIRST, "test") or "no socket" in site.warren(FIRST, "test")
    # PBS's own hook, where it is there, would register jobs a second time.
    if "PBS_cray_atom" in site.pbs.qmgr("list pbshook"):
        site.pbs.qmgr("set pbshook PBS_cray_atom enabled=true")
        assert "jobs would be registered twice" in site.warren(SERVER, "install", "--enable")
        assert "NO  shipped hook" in site.warren(SERVER, "status")
        site.pbs.qmgr("set pbshook PBS_cray_atom enabled=false")


def test_a_registration_that_was_cut_short_is_completed_and_others_hooks_are_left_alone(
    site: Site,
) -> None:
    site.pbs.qmgr("create hook half")
    assert "the hook half is registered" in site.warren(SERVER, "install", "--name", "half")
    assert "alarm = 300" in site.pbs.qmgr("list hook half")
    assert "is gone" in site.warren(SERVER, "uninstall", "--name", "half")
    other = site.pbs.directory / "other.py"
    other.write_text("import pbs\n")
    site.pbs.qmgr(
        "create hook other",
        f"import hook other application/x-python default {site.pbs.inside(other)}",
    )
    assert "is another one" in site.warren(SERVER, "install", "--name", "other")
    assert "is left alone" in site.warren(SERVER, "uninstall", "--name", "other")
    bad = site.pbs.directory / "bad.json"
    bad.write_text('{"post_timeout": 0}')
    said = site.warren(SERVER, "install", "--name", "new", "--config", site.pbs.inside(bad))
    assert "post_timeout: 0 is not more than 0" in said
    assert "Hook new" not in site.pbs.qmgr("list hook")
    site.pbs.qmgr("delete hook other")


def _signal(site: Site, mom: str, name: str) -> None:
    lock = site.pbs.home(mom) / "mom_priv/mom.lock"
    site.pbs.run(mom, ["kill", f"-{name}", lock.read_text().strip()])
