"""`warren atomd` as a process: it says what it does, stops gently, and outlives `kill -9`."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import wait_for
from tests.wlm.pbs import moms
from warren.base.processes import parents

SECONDS = 120.0


class Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(str(self.path))


class Atomd:
    """One `warren atomd` after the other on the same state."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.socket = root / "atomd.sock"
        self.config = root / "atomd.toml"
        self.config.write_text("")
        self.process: subprocess.Popen[str] | None = None

    def command(self, *more: str) -> list[str]:
        return [
            sys.executable, "-m", "warren", "atomd", "--config", str(self.config),
            "--socket", str(self.socket), "--statedir", str(self.root / "state"), *more,
        ]  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until systemd would know that it is ready."""
        told = self.root / "notify"
        told.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(str(told))
            systemd.settimeout(SECONDS)
            with (self.root / "out").open("a") as output:
                self.process = subprocess.Popen(
                    self.command(),
                    stdout=output,
                    stderr=output,
                    text=True,
                    env={**os.environ, "NOTIFY_SOCKET": str(told)},
                )
            assert systemd.recv(100) == b"READY=1"

    def end(self, signum: int) -> int:
        assert self.process is not None
        self.process.send_signal(signum)
        return self.process.wait(SECONDS)

    def ask(self, method: str, path: str = "", body: Any = None) -> tuple[int, Any]:
        connection = Unix(self.socket)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, "/rm/v1/jobs" + path, text)
            answer = connection.getresponse()
            told = answer.read()
            return answer.status, json.loads(told) if told else None
        finally:
            connection.close()

    def jobs(self) -> list[str]:
        return [job["jobid"] for job in self.ask("GET")[1]["jobs"]]


@pytest.fixture
def atomd(tmp_path: Path) -> Iterator[Atomd]:
    made = Atomd(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def job(jobid: str) -> dict[str, Any]:
    return {"jobid": jobid, "uid": 0, "exclusive": False}


def asked_in_vain(atomd: Atomd, jobid: str) -> threading.Thread:
    """Ask for a start that the service will not live to answer."""

    def ask() -> None:
        with pytest.raises((OSError, http.client.HTTPException)):
            atomd.ask("POST", body=job(jobid))

    asking = threading.Thread(target=ask)
    asking.start()
    return asking


def test_what_it_has_acknowledged_outlives_kill_9_at_any_moment(atomd: Atomd) -> None:
    """Clients register and delete; what each of them was told is what the next life says."""
    random.seed(os.environ.get("WARREN_SEED", "atomd"))
    known: dict[str, bool] = {}
    for life in range(5):
        atomd.start()
        assert {name for name, there in known.items() if there} <= set(atomd.jobs())
        assert not {name for name, there in known.items() if not there} & set(atomd.jobs())

        def client(number: int, life: int = life) -> None:
            name = ""
            try:
                for count in range(10_000):
                    name = f"{life}{number}{count}.x"
                    assert atomd.ask("POST", body=job(name))[0] == 200
                    known[name] = True
                    if count % 2:
                        del known[name]
                        assert atomd.ask("DELETE", f"/{name}")[0] == 204
                        known[name] = False
            except (OSError, http.client.HTTPException):
                pass  # it was killed, and what became of this one is not known

        clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
        for each in clients:
            each.start()
        threading.Event().wait(random.uniform(0.05, 0.3))
        atomd.end(signal.SIGKILL)
        for each in clients:
            each.join()
    assert len(known) > 20


def test_it_stops_when_it_is_told_to_and_lets_commands_come_to_their_end(atomd: Atomd) -> None:
    begun = atomd.root / "begun"
    atomd.config.write_text(f'[[start]]\ncommand = ["/bin/sh", "-c", "touch {begun}; sleep 0.5"]\n')
    atomd.start()
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(atomd.ask("POST", body=job("1.x"))[0]))
    asking.start()
    wait_for(begun.exists, SECONDS)
    assert atomd.end(signal.SIGTERM) == 0
    asking.join()
    assert answers == [200]
    assert "the ATOM service has stopped" in (atomd.root / "out").read_text()
    atomd.start()
    assert atomd.jobs() == ["1.x"]


def test_commands_die_with_it_and_what_was_half_done_is_cleaned_up_after(atomd: Atomd) -> None:
    begun, cleaned = atomd.root / "begun", atomd.root / "cleaned"
    atomd.config.write_text(
        f'[[start]]\ncommand = ["/bin/sh", "-c", "echo $$ > {begun}; exec sleep 1000"]\n'
        f'timeout = 1001\n[[end]]\ncommand = ["/bin/sh", "-c", "echo $ATOM_JOBID > {cleaned}"]\n'
    )
    atomd.start()
    asking = asked_in_vain(atomd, "1.x")
    wait_for(lambda: begun.exists() and begun.read_text().strip(), SECONDS)
    command = int(begun.read_text())
    atomd.end(signal.SIGKILL)
    asking.join()
    wait_for(lambda: not Path(f"/proc/{command}/cmdline").exists(), SECONDS)
    atomd.start()
    wait_for(lambda: cleaned.exists() and cleaned.read_text() == "1.x\n", SECONDS)
    wait_for(lambda: atomd.jobs() == [], SECONDS)


def test_what_a_dead_services_command_has_started_is_ended_before_it_is_cleaned_up_after(
    atomd: Atomd,
) -> None:
    child = atomd.root / "child"
    atomd.config.write_text(
        f'[[start]]\ncommand = ["/bin/sh", "-c", "sleep 1000 & echo $! > {child}; wait"]\n'
        "timeout = 1001\n"
    )
    atomd.start()
    asking = asked_in_vain(atomd, "1.x")
    wait_for(lambda: child.exists() and child.read_text().strip(), SECONDS)
    atomd.end(signal.SIGKILL)
    asking.join()
    left = int(child.read_text())
    assert Path(f"/proc/{left}").exists()
    atomd.start()
    wait_for(lambda: left not in parents(), SECONDS)
    wait_for(lambda: atomd.jobs() == [], SECONDS)


def test_what_it_cannot_do_is_said_in_a_sentence(atomd: Atomd) -> None:
    def said(*command: str) -> str:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert ran.returncode == 1
        assert "Traceback" not in ran.stderr
        return ran.stderr

    atomd.config.write_text("max-jobs = -1")
    assert "atomd.toml: max-jobs: Expected `int` >= 1" in said(*atomd.command("--check"))
    atomd.config.write_text("")
    atomd.start()
    assert "is in use by process" in said(*atomd.command())
    elsewhere = atomd.command()
    elsewhere[-1] = str(atomd.root / "other")
    assert "another service listens there" in said(*elsewhere)
    assert atomd.jobs() == []
    long = str(atomd.root / ("x" * (108 - len(str(atomd.root / "")))))
    elsewhere[elsewhere.index("--socket") + 1] = long
    assert "choose a shorter path" in said(*elsewhere)
    elsewhere[elsewhere.index("--socket") + 1] = "/proc/none/sock"
    assert "cannot be listened at" in said(*elsewhere)
    (atomd.root / "third" / "lock").mkdir(parents=True)
    elsewhere[-1] = str(atomd.root / "third")
    assert "is a directory: it cannot be the lock" in said(*elsewhere)
    atomd.end(signal.SIGTERM)
    journal = atomd.root / "state" / "jobs.db"
    journal.write_bytes(journal.read_bytes()[:4096] + b"\xff" * 8192)
    assert "jobs.db cannot be read as a state file" in said(*atomd.command())


def configured(atomd: Atomd, **tunables: float) -> Path:
    path = atomd.root / "CF"
    path.write_text(json.dumps({"unix_socket_file": str(atomd.socket), **tunables}))
    return path


def test_the_hook_and_the_service_understand_each_other(atomd: Atomd) -> None:
    config = configured(atomd)
    atomd.start()
    for _ in range(2):
        assert moms.play(moms.scenario("execjob_begin", config, job="21[1].x")).outcome == "accept"
    ((_, told),) = [atomd.ask("GET", "/21%5B1%5D.x")]
    assert (told["jobid"], told["uid"], told["stage"]) == ("21[1].x", 0, "active")
    # Left behind by another life of the job: a bad request, which the hook repairs.
    other = moms.scenario("execjob_begin", config, job="21[1].x", user="daemon")
    played = moms.play(other)
    assert played.outcome == "accept"
    assert "registered once more" in played.text
    assert atomd.ask("GET", "/21%5B1%5D.x")[1]["uid"] != 0
    for words in ("Job ID deleted", "Job ID was not registered"):
        played = moms.play(moms.scenario("execjob_end", config, job="21[1].x"))
        assert (played.outcome, words in played.text) == ("accept", True)
    assert atomd.jobs() == []


def test_a_start_that_is_too_slow_or_fails_leaves_nothing(atomd: Atomd) -> None:
    cleaned = atomd.root / "cleaned"
    config = configured(atomd, post_timeout=3)
    for start in ("sleep 60", "echo no memory; exit 1"):
        atomd.config.write_text(
            f'[[start]]\ncommand = ["/bin/sh", "-c", "{start}"]\n'
            f'[[end]]\ncommand = ["/bin/sh", "-c", "echo $ATOM_JOBID >> {cleaned}"]\n'
        )
        atomd.start()
        played = moms.play(moms.scenario("execjob_begin", config))
        assert played.outcome == "error"
        assert "POST timed out" in played.text or "/bin/sh: no memory" in played.text
        wait_for(lambda: atomd.jobs() == [], SECONDS)
        assert cleaned.read_text() == "2.pbshost\n"
        cleaned.unlink()
        atomd.end(signal.SIGTERM)


def test_a_service_that_dies_during_a_begin_fails_it_and_has_nothing_when_it_is_back(
    atomd: Atomd,
) -> None:
    begun = atomd.root / "begun"
    config = configured(atomd)
    atomd.config.write_text(
        f'[[start]]\ncommand = ["/bin/sh", "-c", "touch {begun}; sleep 60"]\ntimeout = 61\n'
    )
    atomd.start()
    outcomes = []
    playing = threading.Thread(
        target=lambda: outcomes.append(moms.play(moms.scenario("execjob_begin", config)))
    )
    playing.start()
    wait_for(begun.exists, SECONDS)
    atomd.end(signal.SIGKILL)
    playing.join()
    (played,) = outcomes
    assert played.outcome == "error"
    assert "has no answer that can be understood" in played.message
    assert "the registration may be left behind" in played.text
    atomd.start()
    wait_for(lambda: atomd.jobs() == [], SECONDS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_on_a_full_disk_it_says_so_and_starts_when_there_is_room(
    atomd: Atomd, tmp_path: Path
) -> None:
    disk = tmp_path / "state"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=True)
    try:
        with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(b"x" * 4096):
                pass
        said = tmp_path / "said"
        with said.open("w") as output:
            atomd.process = subprocess.Popen(
                atomd.command(), stdout=output, stderr=output, text=True
            )
        wait_for(lambda: f"the file system of {disk} is full (" in said.read_text())
        (disk / "filler").unlink()
        wait_for(lambda: "serving ATOM at" in said.read_text())
        assert "Traceback" not in said.read_text()
        assert atomd.end(signal.SIGTERM) == 0
    finally:
        if atomd.process is not None:
            atomd.process.kill()
            atomd.process.wait()
        subprocess.run(["umount", str(disk)], check=True)
