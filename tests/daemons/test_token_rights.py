"""Who may do what with Secrets, in a cluster of our own: tokens and keys of jobs are some."""

import pytest

from warren.daemons import roles, users
from warren.daemons.clustershape import ClusterShape
from warren.kube.admission import User
from warren.kube.server.access.authorization import (
    ANONYMOUS,
    AUTHENTICATED,
    Attributes,
    Authorizer,
)
from warren.kube.server.access.roles import default_roles

SITE = ClusterShape(rabbits=1, computes_per_rabbit=1)
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def may(user: User, namespace: str = "default") -> set[str]:
    """Return what a user may do with Secrets."""
    objects = [*default_roles(), *roles.objects(SITE)]
    found = Authorizer(lambda kind: [each for each in objects if each["kind"] == kind.name])

    def asked(verb: str) -> Attributes:
        return Attributes(verb=verb, group="", resource="secrets", namespace=namespace)

    return {verb for verb in VERBS if found.allows(user, asked(verb))}


def known(name: str) -> User:
    return User(name, frozenset({AUTHENTICATED}))


@pytest.mark.parametrize(
    ("name", "verbs"),
    [
        (users.CONTROLLERS, {"create", "get"}),
        (users.INSTANCE, {"get"}),
        (users.OFFLOAD, {"get"}),
        (users.node_user("rabbit-0"), {"get"}),
        (users.CONDUCTOR, set()),
        (users.node_user("compute-00"), set()),
        ("a guest", set()),
    ],
)
def test_secrets_are_read_by_name_where_workflows_are_and_nowhere_else(
    name: str, verbs: set[str]
) -> None:
    assert may(known(name)) == verbs
    assert may(known(name), "nnf-system") == set()
    assert may(known(name), "") == set()


def test_users_that_are_not_known_read_no_secrets() -> None:
    assert may(ANONYMOUS) == set()
