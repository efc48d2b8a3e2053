"""The kinds of objects, and the versions in which they are spoken."""

from warren.dws import kinds


def test_no_two_kinds_are_served_at_one_place() -> None:
    assert len({str(kind) for kind in kinds.ALL}) == len(kinds.ALL)


def test_a_site_may_prefer_a_version_of_those_that_are_spoken() -> None:
    dws, nnf = "dataworkflowservices.github.io", "nnf.cray.hpe.com"

    assert kinds.versions() == kinds.VERSIONS
    assert kinds.versions(nnf="v1alpha9")[nnf] == (
        "v1alpha9", "v1alpha11", "v1alpha10", "v1alpha8",
    )  # fmt: skip
    assert kinds.versions(dws="v1alpha6", nnf="v2")[dws] == ("v1alpha6", "v1alpha7")
    assert kinds.versions(dws="v1alpha6", nnf="v2")[nnf] == kinds.VERSIONS[nnf]
