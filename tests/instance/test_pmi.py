"""The PMI-1 wire: what a task is answered, and what it is cut off for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.instance.shells import info
from warren.instance.shell.pmi import JobAborted, KeyValues, ProtocolError, TaskSession
from warren.instance.shell.shellinfo import ShellInfo

NODES = ((0, 1), (0, 1))
NAME = "fuZZybuNNy"


class Wire:
    """A client of a job's first node, that has said hello if it is polite."""

    def __init__(self, found: ShellInfo | None = None, *, polite: bool = True) -> None:
        found = found or info(nodes=NODES, tasks=4)
        self.entered = 0
        self.pairs = KeyValues(found)
        self.client = TaskSession(found, self.pairs, self._enter)
        if polite:
            assert self.ask("cmd=init pmi_version=1 pmi_subversion=1") is not None

    def ask(self, line: str) -> str | None:
        return self.client.answer(line.encode())

    def _enter(self, client: TaskSession) -> None:
        assert client.in_barrier
        self.entered += 1


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("cmd=init pmi_version=1 pmi_subversion=1",
         "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
        ("cmd=init pmi_version=2 pmi_subversion=0",
         "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
        ("  pmi_subversion=1   pmi_version=1 cmd=init extra=1",
         "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
        ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024"),
        ("cmd=get_appnum", "cmd=appnum rc=0 appnum=0"),
        ("cmd=get_my_kvsname", f"cmd=my_kvsname rc=0 kvsname={NAME}"),
        ("cmd=get_universe_size", "cmd=universe_size rc=0 size=4"),
        (f"cmd=get kvsname={NAME} key=PMI_process_mapping",
         "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))"),
        (f"cmd=get kvsname={NAME} key=nothing", "cmd=get_result rc=-1 msg=unknown_key"),
        ("cmd=get kvsname=theirs key=PMI_process_mapping", "cmd=get_result rc=-1 msg=unknown_key"),
        (f"cmd=put kvsname={NAME} key=a value=b", "cmd=put_result rc=0 msg=success"),
        (f"cmd=put kvsname={NAME} key=a value=", "cmd=put_result rc=0 msg=success"),
        ("cmd=put kvsname=theirs key=a value=b", "cmd=put_result rc=-1 msg=unknown_kvsname"),
        (f"cmd=put kvsname={NAME} key={'k' * 64} value=b", "cmd=put_result rc=-1 msg=too_long"),
        (f"cmd=put kvsname={NAME} key=a value={'v' * 1024}", "cmd=put_result rc=-1 msg=too_long"),
        ("cmd=getbyidx idx=0",
         "cmd=getbyidx_results rc=0 nextidx=1 key=PMI_process_mapping val=(vector,(0,2,2))"),
        ("cmd=getbyidx idx=1", "cmd=getbyidx_results rc=-2 reason=no_more_keyvals"),
        ("cmd=publish_name service=s port=p", "cmd=publish_result rc=-1 msg=not_offered"),
        ("cmd=unpublish_name service=s", "cmd=unpublish_result rc=-1 msg=not_offered"),
        ("cmd=lookup_name service=s", "cmd=lookup_result rc=-1 msg=not_offered"),
        ("cmd=finalize", "cmd=finalize_ack rc=0"),
    ],
)  # fmt: skip
def test_a_request_is_answered(asked: str, answered: str) -> None:
    assert Wire().ask(asked) == answered


def test_what_is_put_can_be_read_at_once_on_the_same_node_and_has_blanks_if_it_has() -> None:
    wire = Wire()
    wire.ask(f"cmd=put kvsname={NAME} key=card value=a b=c  d")

    value = wire.ask(f"cmd=get kvsname={NAME} key=card")
    assert value == "cmd=get_result rc=0 msg=success value=a b=c  d"
    assert wire.pairs.unexchanged() == {"card": "a b=c  d"}


def test_what_others_have_put_is_there_after_an_exchange() -> None:
    wire = Wire()
    wire.ask(f"cmd=put kvsname={NAME} key=mine value=1")
    wire.pairs.add_exchanged({"mine": "1", "theirs": "2"})

    assert wire.ask(f"cmd=get kvsname={NAME} key=theirs") == (
        "cmd=get_result rc=0 msg=success value=2"
    )
    assert wire.pairs.unexchanged() == {}


def test_a_mapping_that_is_no_value_is_unknown() -> None:
    scattered = {"taskmap": {"scheme": "cyclic"}}
    wire = Wire(info(nodes=[range(200)] * 2, tasks=400, options=scattered))

    answer = wire.ask(f"cmd=get kvsname={NAME} key=PMI_process_mapping")
    assert answer == "cmd=get_result rc=0 msg=success value="


def test_a_barrier_is_answered_later() -> None:
    wire = Wire()

    assert wire.ask("cmd=barrier_in") is None
    assert wire.entered == 1
    with pytest.raises(ProtocolError, match="does not wait"):
        wire.ask("cmd=get_maxes")


def test_a_request_to_spawn_is_read_to_its_end_and_refused() -> None:
    wire = Wire()

    for line in ["mcmd=spawn", "nprocs=1", "execname=app", "argcnt=0", "info_num=0"]:
        assert wire.ask(line) is None
    assert wire.ask("endcmd") == "cmd=spawn_result rc=-1 errcodes=-1"
    assert wire.ask("cmd=get_appnum") == "cmd=appnum rc=0 appnum=0"


def test_a_request_to_spawn_has_an_end() -> None:
    wire = Wire()
    wire.ask("mcmd=spawn")

    def spawning() -> None:
        for _ in range(2000):
            wire.ask("arg=" + "x" * 1000)

    with pytest.raises(ProtocolError, match="without an end"):
        spawning()


def test_an_abort_says_what_it_has_to_say() -> None:
    with pytest.raises(JobAborted) as caught:
        Wire().ask("cmd=abort exitcode=7 error_msg=out of luck")

    assert (caught.value.code, caught.value.message) == ("7", "out of luck")


@pytest.mark.parametrize(
    "line",
    [
        "", "hello", "cmd", "cmd=", "cmd=dance", "cmd=put", f"cmd=put kvsname={NAME} key=a",
        f"cmd=put kvsname={NAME} value=a", "cmd=get kvsname=x", "cmd=getbyidx",
        "cmd=getbyidx idx=-1", "cmd=getbyidx idx=9999999999", "cmd=init",
        "cmd=init pmi_version=x pmi_subversion=1",
        "cmd=init pmi_version= pmi_subversion=1", "cmd=init pmi_version=1 pmi_subversion=",
        "cmd=get_maxes\0", "cmd=get_maxes \x1b[0m", "cmd=gét_maxes",
    ],
)  # fmt: skip
def test_who_does_not_keep_to_the_protocol_is_cut_off(line: str) -> None:
    with pytest.raises(ProtocolError):
        Wire().ask(line)


def test_the_first_word_is_init() -> None:
    with pytest.raises(ProtocolError, match="get_maxes before init"):
        Wire(polite=False).ask("cmd=get_maxes")


_WORDS = st.sampled_from(
    ["cmd=init", "pmi_version=1", "pmi_subversion=1", "cmd=put", "cmd=get", f"kvsname={NAME}",
     "key=a", "value=b", "cmd=barrier_in", "cmd=getbyidx", "idx=0", "cmd=abort", "mcmd=spawn",
     "endcmd", "cmd=finalize", " ", "=", "\t"]
)  # fmt: skip


@given(
    lines=st.lists(
        st.one_of(st.binary(max_size=40), st.lists(_WORDS).map(" ".join).map(str.encode))
    )
)
def test_whatever_comes_is_answered_in_one_line_or_cut_off(lines: list[bytes]) -> None:
    wire = Wire()
    for line in lines:
        try:
            answer = wire.client.answer(line)
        except (ProtocolError, JobAborted):
            return
        assert answer is None or "\n" not in answer
