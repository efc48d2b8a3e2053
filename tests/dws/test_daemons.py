"""The daemons that directives name."""

import msgspec
import pytest

from warren.dws.faults import Fault
from warren.dws.jobs import requireddaemons
from warren.dws.objects.breakdowns import DirectiveBreakdown


def breakdown(**status: list[str]) -> DirectiveBreakdown:
    obj = {
        "metadata": {"name": "a-0", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {"directive": "#DW jobdw", "userID": 1},
        "status": {"ready": True, **status},
    }
    return msgspec.convert(obj, DirectiveBreakdown)


def test_a_job_needs_what_its_breakdowns_require_each_once_and_in_order() -> None:
    """Statement 002.26: `requiredDaemons` tells which daemons, and so does its newer name."""
    breakdowns = [
        breakdown(requires=["b", "a"]),
        breakdown(requiredDaemons=["c", "a"]),
        breakdown(),
    ]

    assert requireddaemons.required_daemons(breakdowns) == ("b", "a", "c")


def test_the_token_for_containers_is_no_daemon() -> None:
    asked = [breakdown(requires=["user-container-auth", "copy-offload"])]
    assert requireddaemons.required_daemons(asked) == ("copy-offload",)


def test_a_daemon_that_is_not_known_is_a_fault_of_the_user_with_the_nearest_one() -> None:
    requireddaemons.check_known(["copy-offload"], ["copy-offload"])
    for known, words in (
        (["copy-offload"], "the daemon 'copy-ofload' is not offered by this cluster. Did you mean "
                           "'copy-offload'?"),
        ([], "the daemon 'copy-ofload' is not offered by this cluster. Leave it out, or ask an "
             "admin for it"),
    ):  # fmt: skip
        with pytest.raises(Fault) as fault:
            requireddaemons.check_known(["copy-ofload"], known)
        assert (str(fault.value), fault.value.type) == (words, "User")
