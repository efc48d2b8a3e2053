"""The hook's file, run as a mom runs it, against an ATOM that does what the table says."""

from pathlib import Path

import pytest

from tests.wlm.pbs import moms, table
from tests.wlm.pbs.atoms import Atom, behaving
from tests.wlm.pbs.conftest import Configure
from tests.wlm.pbs.moms import Played, scenario
from tests.wlm.pbs.table import COMPLAINS, ENDS, OFFLINE, RUNS, Case

OUTCOMES = {RUNS: "accept", ENDS: "accept", OFFLINE: "error", COMPLAINS: "reject"}


def judged(case: Case, event: str, socket: Path, configure: Configure) -> tuple[Played, Atom]:
    config = configure(post_timeout=case.seconds, delete_timeout=case.seconds)
    with behaving(socket, case.atom) as atom:
        return moms.play(scenario(event, config)), atom


@pytest.mark.parametrize("case", table.BEGIN, ids=str)
def test_at_the_begin_of_a_job(case: Case, socket: Path, configure: Configure) -> None:
    """Only 200 lets a job begin.

    Seed: This timeout will be used for the POST requests
    Seed: The expected response is an http response 200 OK
    Seed: If the response is a 400 (bad request), the PBS hook will retry the request.
    Seed: If a response other than 200 Ok or a 400 (bad request) is received the hook will reject
    Seed: If the POST encounters a timeout, it will reject the event and offline the vnodes
    """
    played, atom = judged(case, "execjob_begin", socket, configure)
    assert (played.outcome, atom.methods) == (OUTCOMES[case.outcome], list(case.asked)), played.text
    assert case.says in f"{played.text}\n{played.message}"
    assert all(len(line) <= 2100 and line.isprintable() for _, line in played.log)


@pytest.mark.parametrize("case", table.END, ids=str)
def test_at_the_end_of_a_job(case: Case, socket: Path, configure: Configure) -> None:
    """What is not deleted is complained of, and the node stays.

    Seed: This timeout will be used for the DELETE requests
    Seed: The expected response is 204 No Content.
    Seed: If the DELETE encounters a timeout, it will reject the event.
    Seed: If the DELETE encounters a timeout, it will not offline the vnodes
    """
    played, atom = judged(case, "execjob_end", socket, configure)
    assert (played.outcome, atom.methods) == (OUTCOMES[case.outcome], list(case.asked)), played.text
    assert case.says in f"{played.text}\n{played.message}"
    assert played.asked == []
