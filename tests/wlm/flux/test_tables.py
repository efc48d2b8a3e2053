"""Table `rabbit` of a broker's configuration, and what it lets users do."""

from typing import Any

import pytest

from warren.base.errors import UserMistake
from warren.wlm.flux import tables
from warren.wlm.flux.siterules import SiteRules

OWNER, GUEST = 500, 1000
JOBDW = "#DW jobdw type=xfs capacity=1GiB name=a"
CREATE = "#DW create_persistent type=xfs capacity=1GiB name=a"


def spec(dw: Any, **system: Any) -> dict[str, Any]:
    return {"attributes": {"system": {"dw": dw, **system}}, "resources": []}


def rules(**rabbit: Any) -> SiteRules:
    return SiteRules(tables.read({"rabbit": rabbit}), OWNER)


def test_a_configuration_without_the_table_is_all_defaults() -> None:
    assert tables.read({"queues": {}}) == tables.read({"rabbit": {}})


def test_keys_that_are_not_known_are_passed_over_and_named() -> None:
    configuration = {"rabbit": {"setup_timeout": 5, "foo": 1, "dws_api_version": "v1alpha7"}}
    assert tables.read(configuration).setup_timeout == 5
    assert list(tables.unknown_keys(configuration)) == ["foo"]


@pytest.mark.parametrize(
    ("rabbit", "words"),
    [
        ({"setup_timeout": "soon"}, "setup_timeout"),
        ({"policy": {"maximums": {"xfs": -1}}}, "maximums"),
        (7, "rabbit is not a table"),
    ],
)
def test_values_that_mean_nothing_are_refused_by_their_place(rabbit: Any, words: str) -> None:
    with pytest.raises(UserMistake, match=words):
        tables.read({"rabbit": rabbit})


def test_nodes_of_queues_are_those_with_the_properties_that_they_require() -> None:
    queues = {"batch": {"requires": ["b"]}, "all": {}}
    assert tables.properties_of({"queues": queues}, ["batch", "debug"]) == {"b", "debug"}
    with pytest.raises(UserMistake, match="requires no property"):
        tables.properties_of({"queues": queues}, ["all"])


def test_presets_stand_for_their_directives() -> None:
    site = rules(presets={"small": JOBDW})
    assert site.expand_presets(spec("small"))["attributes"]["system"]["dw"] == [JOBDW]
    site.check_allowed(spec([JOBDW]), GUEST)


@pytest.mark.parametrize(
    ("jobspec", "words"),
    [
        (spec("smal"), "did you mean 'small'"),
        (spec([]), "holds no #DW directive"),
        (spec(JOBDW, dw_failure_tolerance=-1), "dw_failure_tolerance=-1"),
        (spec(JOBDW, dw_unsaved_results="keep"), "dw_unsaved_results"),
        (spec(JOBDW, dw_expires="tomorrow"), "dw_expires"),
        (spec([JOBDW] * 65), "64 at most"),
        (spec(CREATE), "Only the owner of the Flux instance"),
    ],
)
def test_what_ingest_would_refuse_is_refused(jobspec: Any, words: str) -> None:
    site = rules(presets={"small": JOBDW})
    assert site.expand_presets(jobspec) == jobspec
    with pytest.raises(UserMistake, match=words):
        site.check_allowed(jobspec, GUEST)


def test_guests_create_persistent_storage_where_the_site_lets_them() -> None:
    rules().check_allowed(spec(CREATE), OWNER)
    rules(restrict_persistent=False).check_allowed(spec(CREATE), GUEST)
    with pytest.raises(UserMistake):
        rules(restrict_persistent_creation=True).check_allowed(spec(CREATE), GUEST)


def test_other_rules_hold_from_when_they_are_configured() -> None:
    site = rules()
    site.configure(tables.read({"rabbit": {"restrict_persistent": False}}))
    site.check_allowed(spec(CREATE), GUEST)
