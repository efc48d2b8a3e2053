"""What `warren kvs` asks of the store, and how it tells the answers."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.harness import virtual
from tests.instance.parts import GUEST, OWNER
from warren.base.errors import UserMistake
from warren.cli.kvs.common import RequestRefused
from warren.cli.main import cli
from warren.instance.content import Content
from warren.instance.kvs import Kvs
from warren.instance.kvs.service import KvsService
from warren.instance.kvs.watchservice import KvsWatch
from warren.journal import MemoryJournal
from warren.rfc import treeobj
from warren.rpc.bus import Bus
from warren.rpc.message import Handle, RpcError

Run = Callable[..., Result]


@pytest.fixture
def warren(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `warren kvs` beside a store that lives from one command to the next."""
    journal = MemoryJournal()
    user = [OWNER]

    def ask(_state: object, work: Callable[[Handle], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            kvs = Kvs(journal, OWNER)
            bus = Bus(OWNER)
            bus.register("kvs", KvsService(kvs).methods())
            bus.register("kvs-watch", KvsWatch(kvs).methods())
            bus.register("content", Content(kvs).methods())
            running = asyncio.ensure_future(kvs.run())
            try:
                return await work(bus.handle(user[0]))
            finally:
                running.cancel()

        return virtual.run(asked())

    for module in ("common", "read", "namespace", "eventlog", "change"):
        monkeypatch.setattr(f"warren.cli.kvs.{module}.ask_instance", ask)

    def run(*words: str, userid: int = OWNER, **more: Any) -> Result:
        user[0] = userid
        return CliRunner().invoke(cli, ["kvs", *words], **more)

    return run


def told(done: Result) -> str:
    assert done.exception is None, done.exception
    return done.stdout


def refused(done: Result) -> str:
    assert isinstance(done.exception, UserMistake), done.exception
    assert "\n" not in str(done.exception)
    return str(done.exception)


def assert_not_permitted(done: Result) -> None:
    assert isinstance(done.exception, RpcError | RequestRefused), done.exception
    assert done.exception.errnum == errno.EPERM


def test_what_is_put_is_got(warren: Run) -> None:
    assert told(warren("put", "a.b=1", "a.c=x=y", "-N", "primary")) == ""
    assert told(warren("put", "-a", "a.b=2")) == ""
    assert told(warren("put", "--append", "a.d=-", input="from\nelsewhere")) == ""

    assert told(warren("get", "a.b", "a.c")) == "12\nx=y\n"
    assert told(warren("get", "--raw", "--label", "a.d")) == "a.d=from\nelsewhere"
    assert json.loads(told(warren("get", "--json", "a.b"))) == {"key": "a.b", "value": "12"}
    assert json.loads(told(warren("get", "-t", "a.b"))) == treeobj.val(b"12")
    assert refused(warren("get", "a.x")) == "a.x: No such file or directory"
    assert refused(warren("get", "a")) == "a: Is a directory"


def test_tree_objects_are_put_as_they_are(warren: Run) -> None:
    tree = treeobj.directory({"x": treeobj.val(b"1"), "l": treeobj.symlink("t.x")})
    told(warren("put", "-t", f"t={json.dumps(tree)}"))

    assert told(warren("get", "t.l")) == "1\n"
    assert "tree object" in refused(warren("put", "-t", "t={}"))
    assert "operation 0" in str(warren("put", ".=x").exception)


def test_directories_are_listed_and_told(warren: Run) -> None:
    told(warren("put", "d.v=1", "d.e.w=2", "x=3"))
    told(warren("mkdir", "d.empty"))
    told(warren("link", "d.v", "d.l"))
    told(warren("link", "-T", "primary", "x", "d.m"))

    assert told(warren("ls")).split() == ["d", "x"]
    assert told(warren("ls", "-F", "d")).split() == ["e.", "empty.", "l@", "m@", "v"]
    assert told(warren("ls", "-R", "d")).split() == ["d.e", "d.e.w", "d.empty", "d.l", "d.m", "d.v"]
    assert told(warren("ls", "-d", "d", "x")).split() == ["d", "x"]
    assert json.loads(told(warren("ls", "--json", "d.e"))) == [{"key": "d.e.w", "type": "val"}]
    assert told(warren("dir", "-R", "d")).splitlines() == [
        "d.e.", "d.e.w = 2", "d.empty.", "d.l -> d.v", "d.m -> primary::x", "d.v = 1",
    ]  # fmt: skip
    assert told(warren("dir", "-d", "d.e")) == "d.e.w\n"
    assert told(warren("readlink", "d.l", "d.m")).splitlines() == ["d.v", "primary::x"]
    assert told(warren("readlink", "-o", "d.m")) == "primary\n"
    assert told(warren("readlink", "-k", "d.m")) == "x\n"
    assert "no link" in refused(warren("readlink", "d.v"))


def test_names_and_values_are_listed_without_control_characters(warren: Run) -> None:
    """What a user's job has written could move the cursor of an admin's terminal."""
    told(warren("put", "d.a\x1b[2J=one\x1b[31m\x9b31m\n\ttwo"))
    told(warren("link", "at\x1b[2J", "d.l"))

    assert told(warren("ls", "d")).split() == [r"a\x1b[2J", "l"]
    assert told(warren("ls", "-R", "d")).split() == [r"d.a\x1b[2J", "d.l"]
    assert told(warren("dir", "d")).splitlines() == [
        r"d.a\x1b[2J = one\u001b[31m\u009b31m", "\ttwo", r"d.l -> at\x1b[2J",
    ]  # fmt: skip


def test_a_directory_is_removed_by_who_says_so(warren: Run) -> None:
    told(warren("put", "d.v=1", "x=1"))
    assert refused(warren("unlink", "x", "d")) == "d is a directory that is not empty: add -R."
    assert told(warren("get", "x")) == "1\n"

    told(warren("unlink", "-R", "x", "d"))
    assert told(warren("ls")) == ""
    assert "x: No such" in refused(warren("unlink", "x"))
    assert told(warren("unlink", "-f", "x")) == ""


def test_a_root_is_told_and_read_again(warren: Run) -> None:
    told(warren("put", "a=1"))
    sequence = told(warren("put", "-s", "a=2"))
    assert told(warren("getroot", "-s")) == sequence == "2\n"
    assert told(warren("getroot", "-o")) == f"{OWNER}\n"
    root = told(warren("getroot")).strip()
    ref = told(warren("getroot", "-b")).strip()
    assert json.loads(root) == treeobj.dirref(ref)
    assert told(warren("put", "-b", "a=2")).strip() == ref
    assert refused(warren("get", "--at", ref, "a")).endswith("is not known any more")
    assert "--at" in refused(warren("get", "--at", "x", "a"))
    assert warren("get", "--at", ref, "-w", "a").exit_code == 2


def test_watching_ends_after_so_many_values(warren: Run) -> None:
    told(warren("put", "a=1"))

    assert told(warren("get", "--watch", "-c", "1", "a")) == "1\n"
    assert told(warren("get", "--waitcreate", "a")) == "1\n"
    assert told(warren("get", "--stream", "a")) == "1\n"
    assert warren("get", "--uniq", "a").exit_code == 2
    assert warren("get", "--watch", "a", "b").exit_code == 2


def test_namespaces_come_and_go(warren: Run) -> None:
    told(warren("namespace", "create", "-o", "5", "one", "two"))
    told(warren("put", "--namespace", "one", "a=1"))

    assert told(warren("get", "-N", "one", "a")) == "1\n"
    assert [line.split() for line in told(warren("namespace", "list")).splitlines()[1:]] == [
        ["primary", str(OWNER), "0x00000000"],
        ["one", "5", "0x00000000"],
        ["two", "5", "0x00000000"],
    ]
    assert "one: " in refused(warren("namespace", "create", "one"))
    told(warren("namespace", "remove", "one", "two"))
    assert refused(warren("get", "-N", "one", "a")) == "a: there is no namespace one"


def test_a_task_has_the_namespace_of_its_job_unless_it_names_another(warren: Run) -> None:
    told(warren("put", "job=records"))
    told(warren("namespace", "create", "job-7"))
    task = {"FLUX_KVS_NAMESPACE": "job-7"}

    told(warren("put", "job=1", env=task))
    told(warren("eventlog", "append", "-t", "1.5", "log", "end", env=task))

    assert told(warren("get", "job", env=task)) == "1\n"
    assert told(warren("ls", env=task)).split() == ["job", "log"]
    assert told(warren("eventlog", "get", "log", env=task)) == "1.500000 end\n"
    assert told(warren("get", "-N", "primary", "job", env=task)) == "records\n"
    assert told(warren("get", "job")) == "records\n"
    assert told(warren("get", "-N", "job-7", "job")) == "1\n"


def test_a_user_reads_and_writes_the_namespace_of_its_job_and_no_other(warren: Run) -> None:
    """Statement 003.4: command line tools read and write the guest namespace."""
    told(warren("namespace", "create", "-o", str(GUEST), "job-7"))
    told(warren("put", "job=records"))
    task = {"FLUX_KVS_NAMESPACE": "job-7"}

    told(warren("put", "tools.mine.a=1", userid=GUEST, env=task))
    assert told(warren("get", "tools.mine.a", userid=GUEST, env=task)) == "1\n"
    told(warren("put", "-N", "job-7", "tools.mine.a=2", userid=GUEST))
    assert told(warren("get", "-N", "job-7", "tools.mine.a", userid=GUEST)) == "2\n"
    for words in (("get", "job"), ("put", "job=1")):
        assert_not_permitted(warren(*words, userid=GUEST))
        assert_not_permitted(warren(words[0], "-N", "job-7", *words[1:], userid=GUEST + 1))
    assert told(warren("get", "job")) == "records\n"


def test_events_are_appended_and_told(warren: Run) -> None:
    told(warren("eventlog", "append", "-t", "1.5", "log", "begin", '{"a":', '"b c"}'))
    told(warren("eventlog", "append", "log", "end"))

    first, second = told(warren("eventlog", "get", "log")).splitlines()
    assert first == '1.500000 begin a="b c"'
    assert second.endswith(" end")
    stored = told(warren("eventlog", "get", "-u", "-c", "1", "log"))
    assert json.loads(stored) == {"timestamp": 1.5, "name": "begin", "context": {"a": "b c"}}
    assert told(warren("eventlog", "get", "--watch", "-c", "1", "log")) == first + "\n"
    assert "not JSON" in refused(warren("eventlog", "append", "log", "bad", "{"))
    assert "JSON object" in refused(warren("eventlog", "append", "log", "bad", "[]"))
    told(warren("put", "x=words\n"))
    refused(warren("eventlog", "get", "x"))


def test_a_value_that_is_no_eventlog_is_refused_in_a_sentence(warren: Run) -> None:
    told(warren("put", "--raw", "bytes=-", input=b"\xff\n"))
    told(warren("put", "--raw", "unended=-", input=b'{"timestamp":1.0,"name":"a"}\n{"time'))
    told(warren("put", "--raw", "word=-", input=b"word"))
    told(warren("put", "--raw", "empty=-", input=b""))

    assert "bytes is no eventlog: a line is not UTF-8" in refused(
        warren("eventlog", "get", "bytes")
    )
    assert "word is no eventlog: its last line does not end" in refused(
        warren("eventlog", "get", "word")
    )
    unended = warren("eventlog", "get", "unended")
    assert "unended is no eventlog: its last line does not end" in refused(unended)
    assert unended.stdout == "1.000000 a\n"
    assert told(warren("eventlog", "get", "-c", "1", "unended")) == "1.000000 a\n"
    assert told(warren("eventlog", "get", "empty")) == ""


@pytest.mark.parametrize("words", [("put", "a"), ("get",), ("eventlog", "append", "log")])
def test_a_wrong_command_line_is_told_from_a_refusal(warren: Run, words: tuple[str, ...]) -> None:
    assert warren(*words).exit_code == 2
