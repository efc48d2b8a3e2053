"""What agents are granted: by namespace, and to those whose node it is."""

from warren.daemons import roles
from warren.daemons.clustershape import ClusterShape
from warren.daemons.users import node_user

SITE = ClusterShape(rabbits=1, computes_per_rabbit=2)


def test_a_cluster_grants_its_agents_what_is_printed_for_others() -> None:
    printed = list(roles.agent_roles(["rabbit-0"], ["compute-00", "compute-01"]))

    granted = list(roles.objects(SITE))
    assert [each for each in printed if each not in granted] == []
    places = {each["metadata"]["namespace"] for each in printed}
    assert places == {"rabbit-0", "compute-00", "compute-01", "warren-node-lease"}


def test_every_grant_is_to_the_agent_of_the_node_in_whose_namespace_it_is() -> None:
    for account in (None, "agent"):
        for each in roles.agent_roles(["rabbit-0"], ["compute-00"], account):
            if each["kind"] != "RoleBinding":
                continue
            (subject,) = each["subjects"]
            place = each["metadata"]["namespace"]
            node = "rabbit-0" if place == "warren-node-lease" else place
            if account is None:
                assert (subject["kind"], subject["name"]) == ("User", node_user(node))
            else:
                expected = {"kind": "ServiceAccount", "name": account, "namespace": node}
                assert subject == expected


def test_agents_that_are_not_the_clusters_own_run_no_pods() -> None:
    """To run them takes the Secrets of all jobs (ADR 079, 085)."""
    own, others = SITE, ClusterShape(rabbits=1, computes_per_rabbit=2, agents=False)
    pods = [each for each in roles.objects(own) if roles.PODS_ROLE in each["metadata"]["name"]]
    bound = [each for each in pods if each["kind"] == "RoleBinding"]

    assert len(bound) == 1
    taken = list(roles.revoked_objects(others))
    assert bound[0] in taken
    granted = list(roles.objects(others))
    assert [each for each in taken if each in granted] == []
    assert list(roles.revoked_objects(own)) == []
