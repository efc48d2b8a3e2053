"""A process that acts for a guest."""

import os
import threading
import time
from typing import Any

import pytest

from warren.base.errors import UserMistake
from warren.cli.cluster import guestprocess
from warren.rpc.message import RpcError


def itself() -> None:
    """Become no other."""


def test_it_is_another_process_that_answers_one_request_after_the_other() -> None:
    with guestprocess.running(itself, lambda asked: [asked, os.getpid()]) as process:
        first, second = process.ask({"a": "x\ny"}), process.ask(2)
    assert [first[0], second[0]] == [{"a": "x\ny"}, 2]
    assert first[1] == second[1] != os.getpid()


@pytest.mark.parametrize(
    "error", [UserMistake("no room"), RpcError(1, "no room"), OSError("no room")]
)
def test_what_is_wrong_reaches_the_one_who_asked(error: Exception) -> None:
    def act(asked: Any) -> str:
        if asked == "wrong":
            raise error
        return "right"

    with guestprocess.running(itself, act) as process:
        with pytest.raises(UserMistake, match=r"^no room$"):
            process.ask("wrong")
        assert process.ask("more") == "right"


def test_one_that_does_not_answer_is_given_up_and_gives_no_late_answer() -> None:
    with guestprocess.running(itself, time.sleep, seconds=0.1) as process:
        with pytest.raises(UserMistake, match="does not answer"):
            process.ask(600)
        with pytest.raises(UserMistake, match="has ended"):
            process.ask(0)


def test_one_that_cannot_become_the_guest_acts_as_no_other() -> None:
    with (
        guestprocess.running(lambda: os._exit(1), lambda asked: asked) as process,
        pytest.raises(UserMistake, match="has ended"),
    ):
        process.ask(1)


def test_it_keeps_no_pipe_of_its_parents_open() -> None:
    reading, writing = os.pipe()
    with guestprocess.running(itself, lambda asked: asked) as process:
        process.ask(1)
        os.close(writing)
        assert os.read(reading, 1) == b""
    os.close(reading)


def test_nothing_is_left_of_it_when_its_block_ends() -> None:
    with guestprocess.running(itself, lambda asked: os.getpid()) as process:
        pid = process.ask(1)
        found = threading.Thread(target=process.ask, args=(1,))
        found.start()
        found.join()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
