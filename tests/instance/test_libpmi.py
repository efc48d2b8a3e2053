"""The library with the PMI-1 functions, against the server that tasks have."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.instance.shells import info
from warren.instance.shell.plugins import RunningShell
from warren.instance.shell.pmi import LIBRARY_VARIABLE, JobAborted, KeyValues, Pmi, TaskSession
from warren.instance.shell.shellinfo import ShellInfo

BUILD = Path(__file__).parents[2] / "tools/pmi"

NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("cc") is None, reason="there is no C compiler cc to build the library with"
)

CALLS = """
import ctypes, json, sys
pmi = ctypes.CDLL(sys.argv[1])
number, text = ctypes.c_int(), ctypes.create_string_buffer(1024)
said = {}

def ask(function):
    status = getattr(pmi, function)(ctypes.byref(number))
    said[function.removeprefix("PMI_")] = number.value if status == 0 else f"error {status}"

"""
"""How a program calls the functions. What it has in `said`, it prints in the end."""

BEGUN = (
    "pmi.PMI_Init(ctypes.byref(number)); pmi.PMI_KVS_Get_my_name(text, 1024)\nname = text.value\n"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("environment")
    done = subprocess.run([BUILD, directory], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    return directory / "lib/warren/libpmi.so"


def called(library: Path, program: str, found: ShellInfo, rank: int = 0) -> tuple[Any, int]:
    """Run calls as a task of a job; return what they said, or why they ended the job, and the code.

    At a barrier the others put `theirs`.
    """
    ours, theirs = socket.socketpair()
    ended: list[str] = []
    serving = Thread(target=_serve, args=(ours, found, ended))
    serving.start()
    with ours:
        with theirs:
            number = theirs.fileno()
            task = {"PMI_FD": str(number), "PMI_RANK": str(rank), "PMI_SIZE": str(found.task_count)}
            words: list[str | Path] = [
                sys.executable,
                "-c",
                f"{CALLS}{program}\nprint(json.dumps(said))",
                library,
            ]
            done = subprocess.run(
                words, env={**os.environ, **task}, pass_fds=[number], capture_output=True, text=True
            )
        serving.join()
    assert ended or done.returncode == 0, done.stderr
    return ended[0] if ended else json.loads(done.stdout), done.returncode


def _serve(wire: socket.socket, found: ShellInfo, ended: list[str]) -> None:
    pairs = KeyValues(found)
    client = TaskSession(found, pairs, lambda _: None)
    with wire.makefile("rwb", buffering=0) as lines:
        while line := lines.readline():
            try:
                answer = client.answer(line.removesuffix(b"\n"))
            except JobAborted as error:
                ended.append(f"{error.code}: {error.message}")
                return
            if client.in_barrier:
                pairs.add_exchanged({**pairs.unexchanged(), "theirs": "a b=c"})
                client.in_barrier, answer = False, "cmd=barrier_out rc=0"
            assert answer is not None
            lines.write(answer.encode() + b"\n")


def job(nodes: int = 2, tasks: int = 6, scheme: str = "block", value: str = "") -> ShellInfo:
    taskmap = {"taskmap": {"scheme": scheme, "value": value}}
    return info(nodes=[range(4)] * nodes, tasks=tasks, options=taskmap)


@NEEDS_COMPILER
def test_a_program_finds_itself(library: Path) -> None:
    program = """
for function in ("Initialized", "Init", "Initialized", "Get_rank", "Get_size", "Get_universe_size",
                 "Get_appnum", "KVS_Get_name_length_max", "KVS_Get_key_length_max",
                 "KVS_Get_value_length_max"):
    ask(f"PMI_{function}")
pmi.PMI_KVS_Get_my_name(text, 64)
said["name"] = text.value.decode()
said["end"] = pmi.PMI_Finalize()
"""
    said, _ = called(library, program, job(), rank=4)

    assert said == {
        "Init": 0,
        "Initialized": 1,
        "Get_rank": 4,
        "Get_size": 6,
        "Get_universe_size": 6,
        "Get_appnum": 0,
        "KVS_Get_name_length_max": 64,
        "KVS_Get_key_length_max": 64,
        "KVS_Get_value_length_max": 1024,
        "name": "fuZZybuNNy",
        "end": 0,
    }


@NEEDS_COMPILER
def test_what_is_put_is_read_and_what_others_put_after_a_barrier(library: Path) -> None:
    program = f"""{BEGUN}
def get(key):
    status = pmi.PMI_KVS_Get(name, key, text, 1024)
    return text.value.decode() if status == 0 else status

said["put"] = pmi.PMI_KVS_Put(name, b"mine", b"x=1  y")
said["commit"] = pmi.PMI_KVS_Commit(name)
said["early"] = get(b"theirs")
said["barrier"] = pmi.PMI_Barrier()
said["mine"], said["theirs"] = get(b"mine"), get(b"theirs")
said["narrow"] = pmi.PMI_KVS_Get(name, b"mine", text, 6)
"""
    said, _ = called(library, program, job())

    assert said == {
        "put": 0,
        "commit": 0,
        "early": 4,  # PMI_ERR_INVALID_KEY
        "barrier": 0,
        "mine": "x=1  y",
        "theirs": "a b=c",
        "narrow": 8,  # PMI_ERR_INVALID_LENGTH
    }


@pytest.mark.parametrize(
    ("found", "rank", "ranks"),
    [
        (job(nodes=1, tasks=3), 1, [0, 1, 2]),
        (job(), 2, [0, 1, 2]),
        (job(), 3, [3, 4, 5]),
        (job(scheme="cyclic"), 3, [1, 3, 5]),
        (job(scheme="cyclic", value="2"), 4, [0, 1, 4]),
        # Where the mapping is too long for a value, a task knows of none beside it.
        (info(nodes=[range(200)] * 2, tasks=400,
              options={"taskmap": {"scheme": "cyclic"}}), 7, [7]),
    ],
)  # fmt: skip
@NEEDS_COMPILER
def test_a_program_knows_who_is_on_its_node(
    library: Path, found: ShellInfo, rank: int, ranks: list[int]
) -> None:
    program = f"""{BEGUN}
ask("PMI_Get_clique_size")
ranks = (ctypes.c_int * number.value)()
said["status"], said["ranks"] = pmi.PMI_Get_clique_ranks(ranks, len(ranks)), list(ranks)
said["too few"] = pmi.PMI_Get_clique_ranks(ranks, 0)
"""
    said, _ = called(library, program, found, rank)

    expected = {"Get_clique_size": len(ranks), "status": 0, "ranks": ranks, "too few": 13}
    assert said == expected


@NEEDS_COMPILER
def test_what_the_wire_cannot_carry_is_refused(library: Path) -> None:
    program = f"""{BEGUN}
said["refused"] = [
    pmi.PMI_KVS_Put(name, b"k" * 64, b"v"),
    pmi.PMI_KVS_Put(name, b"k", b"v" * 1024),
    pmi.PMI_KVS_Put(name, b"a b", b"v"),
    pmi.PMI_KVS_Put(name, b"", b"v"),
    pmi.PMI_KVS_Put(name, b"k", b"v\\\\ncmd=finalize"),
    pmi.PMI_KVS_Put(b"theirs", b"k", b"v"),
    pmi.PMI_KVS_Get(name, b"k" * 5000, text, 1024),
    pmi.PMI_Publish_name(b"service", b"port"),
]
said["whole"] = pmi.PMI_KVS_Put(name, b"k" * 63, b"v" * 1023)
""".replace("\\\\n", "\\n")
    said, _ = called(library, program, job())

    assert said == {"refused": [5, 7, 3, 3, 3, -1, 4, -1], "whole": 0}


@NEEDS_COMPILER
def test_a_program_that_aborts_ends_its_job_and_itself(library: Path) -> None:
    said, code = called(library, f"{BEGUN}pmi.PMI_Abort(3, b'no\\nluck')", job())

    assert (said, code) == ("3: no", 3)


@NEEDS_COMPILER
def test_without_a_server_nothing_is_offered(library: Path) -> None:
    program = 'ask("PMI_Get_rank"); ask("PMI_Init"); said["end"] = pmi.PMI_Finalize()'
    environment = {name: value for name, value in os.environ.items() if name[:4] != "PMI_"}
    said = subprocess.check_output(
        [sys.executable, "-c", f"{CALLS}{program}\nprint(json.dumps(said))", library],
        env=environment,
    )

    assert json.loads(said) == {"Get_rank": "error 1", "Init": "error -1", "end": 1}


def test_where_there_is_no_compiler_nothing_is_built(tmp_path: Path) -> None:
    environment = {**os.environ, "CC": "no-such-compiler"}
    done = subprocess.run([BUILD, tmp_path], capture_output=True, env=environment, check=True)

    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == (b"", b"", [])


# Where tasks find it


def given(library: Path, *, pmi: str = "simple", **environment: str) -> str | None:
    """Return where the tasks of a job look for the library."""
    shell = SimpleNamespace(info=info(options={"pmi": pmi}), environment=environment)
    asyncio.run(Pmi(library).init(cast(RunningShell, shell)))
    return shell.environment.get(LIBRARY_VARIABLE)  # type: ignore[no-any-return]


def test_tasks_are_told_where_the_library_is_unless_they_have_their_own(tmp_path: Path) -> None:
    built = tmp_path / "libpmi.so"
    built.touch()

    assert given(built) == str(built)
    assert given(built, **{LIBRARY_VARIABLE: "/flux/libpmi.so"}) == "/flux/libpmi.so"


def test_tasks_are_told_of_no_library_that_would_not_work(tmp_path: Path) -> None:
    built = tmp_path / "libpmi.so"
    assert given(built) is None
    built.touch()
    assert given(built, pmi="none") is None
