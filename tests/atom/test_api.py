"""The service over its socket: what it answers, whom, and what it bears."""

import asyncio
import json
import os
import socket as sockets
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.atom.living import Scripted
from warren.atom import listening
from warren.atom.api import JOBS_PATH, Api
from warren.atom.register import Register
from warren.atom.registration import RegisteredJob, Registration, Stage
from warren.atom.service import Service
from warren.atom.sitecommands import SiteCommandRunner
from warren.base.clock import SystemClock
from warren.base.errors import UserMistake
from warren.journal import MemoryJournal
from warren.kube import serving

US = frozenset({os.geteuid()})

Ask = Callable[..., Coroutine[None, None, tuple[int, Any]]]

JOB = {"jobid": "21[1].pbshost", "uid": 1000, "exclusive": True}


@asynccontextmanager
async def served(
    path: Path,
    *,
    users: frozenset[int] = US,
    actions: SiteCommandRunner | None = None,
    most: int = 10_000,
    held: list[RegisteredJob] | None = None,
    most_connections: int = 100,
    body_timeout: float = 60.0,
) -> AsyncIterator[Ask]:
    """Serve at `path`, and return what asks there."""
    register = Register(MemoryJournal())
    service = Service(register, actions or SiteCommandRunner([], [], 1, "own"), SystemClock(), most)
    app = Api(service, register, users, body_timeout=body_timeout).application()
    listener = listening.listen(path, 0o600, None)
    async with asyncio.TaskGroup() as parts:
        tasks = [
            parts.create_task(
                serving.serve_limited(app, listener, most_connections, client_timeout=body_timeout)
            ),
            parts.create_task(service.run()),
        ]
        await asyncio.sleep(0)
        for each in held or []:
            await register.put(each)
        async with aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(path)), base_url="http://localhost"
        ) as session:

            async def ask(method: str, url: str, body: Any = None) -> tuple[int, Any]:
                data = body if body is None or isinstance(body, bytes) else json.dumps(body)
                async with session.request(method, url, data=data) as answer:
                    text = await answer.read()
                    return answer.status, json.loads(text) if text else None

            yield ask
        for task in tasks:
            task.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "atomd.sock"


def test_a_job_is_registered_shown_and_deleted(path: Path) -> None:
    async def story() -> None:
        async with served(path) as ask:
            code, told = await ask("POST", JOBS_PATH, JOB)
            assert code == 200
            assert {key: told[key] for key in JOB} == JOB
            assert told["stage"] == "active"
            assert await ask("GET", JOBS_PATH) == (200, {"jobs": [told]})
            assert await ask("GET", f"{JOBS_PATH}/21%5B1%5D.pbshost") == (200, told)
            assert await ask("DELETE", f"{JOBS_PATH}/21%5B1%5D.pbshost") == (204, None)
            assert await ask("GET", JOBS_PATH) == (200, {"jobs": []})

    asyncio.run(story())


@pytest.mark.parametrize(
    ("method", "url", "body", "code", "words"),
    [
        ("POST", JOBS_PATH, b"{", 400, "not JSON"),
        ("POST", JOBS_PATH, b"\xff\xfe", 400, "not JSON"),
        ("POST", JOBS_PATH, b'{"jobid":' + b"[" * 30_000, 400, "jobid: Expected `str`"),
        (
            "POST",
            JOBS_PATH,
            b'{"more":' + b"[" * 30_000,
            400,
            "there is no key 'more' here: it is one of jobid, uid or exclusive",
        ),
        ("POST", JOBS_PATH, b"", 400, "not JSON"),
        ("POST", JOBS_PATH, [], 400, "Expected `object`"),
        ("POST", JOBS_PATH, {"jobid": "1"}, 400, "missing required field `uid`"),
        ("POST", JOBS_PATH, {**JOB, "uid": "0"}, 400, "uid: Expected `int`, got `str`"),
        ("POST", JOBS_PATH, {**JOB, "uid": True}, 400, "uid: Expected `int`, got `bool`"),
        ("POST", JOBS_PATH, {**JOB, "uid": -1}, 400, "uid: Expected `int` >= 0"),
        ("POST", JOBS_PATH, {**JOB, "uid": 2**32 - 1}, 400, "uid: Expected `int` <="),
        ("POST", JOBS_PATH, {**JOB, "exclusive": 1}, 400, "exclusive: Expected `bool`"),
        ("POST", JOBS_PATH, {**JOB, "jobid": "../1"}, 400, "jobid: Expected `str` matching"),
        ("POST", JOBS_PATH, {**JOB, "jobid": "1\n"}, 400, "jobid: Expected `str` matching"),
        ("POST", JOBS_PATH, {**JOB, "jobid": "x" * 256}, 400, "jobid: Expected `str` matching"),
        (
            "POST",
            JOBS_PATH,
            {**JOB, "more": 1},
            400,
            "there is no key 'more' here: it is one of jobid, uid or exclusive",
        ),
        ("POST", JOBS_PATH, b" " * 70_000, 413, "too large"),
        ("GET", f"{JOBS_PATH}/1.x", None, 404, "job 1.x is not registered here"),
        ("DELETE", f"{JOBS_PATH}/1.x", None, 404, "job 1.x is not registered here"),
        ("PUT", f"{JOBS_PATH}/1.x", None, 405, "not allowed"),
        ("DELETE", JOBS_PATH, None, 405, "not allowed"),
        ("GET", "/rm/v2/jobs", None, 404, "not found"),
        ("TRACE", "/", None, 404, "not found"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence_and_changes_nothing(
    path: Path, method: str, url: str, body: Any, code: int, words: str
) -> None:
    async def story() -> None:
        async with served(path) as ask:
            answered, told = await ask(method, url, body)
            assert (answered, words in told["message"]) == (code, True), told
            assert await ask("GET", JOBS_PATH) == (200, {"jobs": []})

    asyncio.run(story())


def test_another_job_of_the_id_is_a_bad_request_which_a_delete_mends(path: Path) -> None:
    async def story() -> None:
        async with served(path) as ask:
            await ask("POST", JOBS_PATH, JOB)
            code, told = await ask("POST", JOBS_PATH, {**JOB, "uid": 7})
            assert code == 400
            assert "delete it first" in told["message"]
            assert (await ask("POST", JOBS_PATH, JOB))[0] == 200
            assert (await ask("DELETE", f"{JOBS_PATH}/21%5B1%5D.pbshost"))[0] == 204
            assert (await ask("POST", JOBS_PATH, {**JOB, "uid": 7}))[0] == 200

    asyncio.run(story())


def test_a_command_that_fails_and_a_node_that_is_full_are_the_nodes_fault(path: Path) -> None:
    async def story() -> None:
        async with served(path, actions=Scripted(seconds=0, failing=["start"]), most=1) as ask:
            code, told = await ask("POST", JOBS_PATH, JOB)
            assert (code, "fails" in told["message"]) == (500, True)
        async with served(path, most=1) as ask:
            await ask("POST", JOBS_PATH, JOB)
            code, told = await ask("POST", JOBS_PATH, {**JOB, "jobid": "2.x"})
            assert (code, "max-jobs" in told["message"]) == (503, True)

    asyncio.run(story())


def test_a_user_who_is_not_let_in_is_told_so_and_no_more(path: Path) -> None:
    async def story() -> None:
        async with served(path, users=frozenset({4242})) as ask:
            for method, url in (
                ("POST", JOBS_PATH),
                ("GET", JOBS_PATH),
                ("DELETE", f"{JOBS_PATH}/1.x"),
            ):
                code, told = await ask(method, url, JOB if method == "POST" else None)
                assert (code, "may not ask here" in told["message"]) == (403, True)

    asyncio.run(story())


def test_many_jobs_are_listed_whole_and_in_order(path: Path) -> None:
    held = [
        RegisteredJob(Registration(f"{number}.x", number, exclusive=False), Stage.ACTIVE, 1.0)
        for number in range(2500)
    ]

    async def story() -> None:
        async with served(path, held=held) as ask:
            code, told = await ask("GET", JOBS_PATH)
            assert code == 200
            assert [each["uid"] for each in told["jobs"]] == list(range(2500))

    asyncio.run(story())


def test_the_socket_is_for_those_whom_its_mode_lets_in(path: Path) -> None:
    listener = listening.listen(path, 0o600, None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.close()
    # What a dead service has left is replaced.
    listening.listen(path, 0o660, os.getegid()).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_a_socket_that_is_served_and_a_file_that_is_none_are_left_alone(path: Path) -> None:
    with listening.listen(path, 0o600, None), pytest.raises(UserMistake, match="another service"):
        listening.listen(path, 0o600, None)
    path.unlink()
    path.write_text("precious")
    with pytest.raises(UserMistake, match="is not a socket"):
        listening.listen(path, 0o600, None)
    assert path.read_text() == "precious"
    with pytest.raises(UserMistake, match="cannot be listened at"):
        listening.listen(path / "below" / "sock", 0o600, None)


def test_a_socket_whose_service_hangs_is_served_and_not_waited_for(path: Path) -> None:
    with listening.listen(path, 0o600, None) as hung:
        hung.listen(0)
        with sockets.socket(sockets.AF_UNIX) as guest:
            guest.connect(str(path))
            with pytest.raises(UserMistake, match="another service"):
                listening.listen(path, 0o600, None)


def test_a_body_that_is_not_what_its_headers_say_is_a_bad_request(path: Path) -> None:
    async def story() -> None:
        async with served(path):
            reader, writer = await asyncio.open_unix_connection(path)
            head = f"POST {JOBS_PATH} HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n"
            writer.write(head.encode() + b"Content-Length: 2\r\n\r\n{}")
            assert b" 400 " in await reader.readline()
            writer.close()

    asyncio.run(story())


def test_a_client_that_says_nothing_or_not_enough_is_not_waited_for(path: Path) -> None:
    head = f"POST {JOBS_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345"

    async def heard(words: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(words)
        async with asyncio.timeout(60):
            said = await reader.readline()
        writer.close()
        return said

    async def story() -> None:
        async with served(path, body_timeout=1) as ask:
            assert await heard(b"") == b""
            assert await heard(b"POST /rm/v1/jobs HTTP/1.1\r\nHost:") == b""
            assert b" 408 " in await heard(head.encode())
            assert (await ask("POST", JOBS_PATH, JOB))[0] == 200
            # A client that has asked may stay.
            await asyncio.sleep(1.5)
            assert (await ask("GET", JOBS_PATH))[0] == 200

    asyncio.run(story())


async def refused(ask: Ask) -> bool:
    try:
        await ask("GET", JOBS_PATH)
    except aiohttp.ClientConnectionError:
        return True
    return False


def test_no_more_connections_are_open_than_are_allowed(path: Path) -> None:
    async def story() -> None:
        async with served(path, most_connections=5) as ask:
            guests = [await asyncio.open_unix_connection(path) for _ in range(7)]
            async with asyncio.timeout(60):
                assert await guests[5][0].read() == await guests[6][0].read() == b""
            for _, writer in guests:
                writer.close()
            # There is room as soon as the service has seen that they have gone.
            async with asyncio.timeout(60):
                while await refused(ask):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (await ask("GET", JOBS_PATH))[0] == 200

    asyncio.run(story())


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
_bodies = st.one_of(
    st.binary(max_size=200),
    _values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            "jobid": _values | st.from_regex(r"[0-9]+(\[[0-9]+\])?\.[a-z]+", fullmatch=True),
            "uid": _values | st.integers(0, 2**32),
            "exclusive": _values,
            "more": _values,
        },
    ).map(lambda value: json.dumps(value).encode()),
)


def test_any_body_is_a_job_or_a_bad_request(path: Path) -> None:
    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(_bodies)
    def judged(body: bytes) -> None:
        code, told = runner.run(ask("POST", JOBS_PATH, body))
        if code == 200:
            given = json.loads(body)
            assert {key: told[key] for key in given} == given
            assert set(given) == {"jobid", "uid", "exclusive"}
            assert type(given["uid"]) is int
        else:
            assert (code, list(told)) == (400, ["message"])

    with asyncio.Runner() as runner:
        place = served(path)
        # Entered and left in one task each: the runner's own.
        ask = runner.run(_entered(place))
        judged()
        runner.run(_left(place))


async def _entered(place: Any) -> Ask:
    ask: Ask = await place.__aenter__()
    return ask


async def _left(place: Any) -> None:
    await place.__aexit__(None, None, None)


def test_a_request_in_pieces_is_a_request(path: Path) -> None:
    body = json.dumps(JOB).encode()
    words = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        JOBS_PATH.encode(),
        len(body),
        body,
    )

    async def story() -> None:
        async with served(path):
            reader, writer = await asyncio.open_unix_connection(path)
            for position in range(0, len(words), 7):
                writer.write(words[position : position + 7])
                await writer.drain()
                await asyncio.sleep(0)
            assert b" 200 " in await reader.readline()
            writer.close()

    asyncio.run(story())


def test_the_peer_is_who_the_kernel_says() -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user takes root")

    def ask_as(path: Path, user: int) -> bytes:
        """Ask as another user, in a child."""
        ours, theirs = sockets.socketpair()
        child = os.fork()
        if child == 0:
            try:
                with sockets.socket(sockets.AF_UNIX) as connection:
                    connection.settimeout(60)
                    os.setuid(user)
                    connection.connect(str(path))
                    connection.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % JOBS_PATH.encode())
                    theirs.sendall(connection.recv(4096))
            finally:
                os._exit(0)
        theirs.close()
        said = ours.recv(4096)
        ours.close()
        os.waitpid(child, 0)
        return said

    async def story(path: Path) -> None:
        async with served(path, users=frozenset({0, 4242})):
            os.chmod(path, 0o666)
            assert b" 403 " in await asyncio.to_thread(ask_as, path, 4243)
            assert b" 200 " in await asyncio.to_thread(ask_as, path, 4242)

    # Not where pytest has its files: others do not get in there.
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        asyncio.run(story(Path(directory) / "sock"))
