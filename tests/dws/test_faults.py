"""Faults: what is wrong, with its severity, over a status and back."""

import pytest

from warren.dws.faults import STATUS_BY_SEVERITY, Fault, raise_for
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Error


@pytest.mark.parametrize(
    ("severity", "status"),
    [("Minor", "Running"), ("Major", "TransientCondition"), ("Fatal", "Error")],
)
def test_each_severity_has_its_status(severity: str, status: str) -> None:
    assert STATUS_BY_SEVERITY[severity] == status


def test_a_fault_keeps_its_words_over_a_status() -> None:
    fault = Fault("no room", severity="Major", type="WLM", debug="ENOSPC")
    assert fault.workflow_message == "WLM error: no room"

    told = read(fault.as_error(), Error)

    with pytest.raises(Fault) as raised:
        raise_for(told)
    assert raised.value.as_error() == fault.as_error()
    with pytest.raises(Fault, match=r"^r0: no room$"):
        raise_for(told, "r0")


def test_an_error_without_words_for_users_shows_those_for_developers() -> None:
    with pytest.raises(Fault, match=r"^r0: ENOSPC$") as raised:
        raise_for(Error(debug_message="ENOSPC"), "r0")
    assert (raised.value.type, raised.value.severity) == ("Internal", "Minor")


def test_no_error_raises_nothing() -> None:
    raise_for(None, "r0")
