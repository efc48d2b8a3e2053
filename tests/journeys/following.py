"""A Workflow as it changes, for tests that act the moment it comes to a state."""

import http.client
import json
from collections.abc import Callable, Generator
from contextlib import closing
from urllib.parse import urlsplit

from tests.journeys.conftest import SECONDS, Cluster
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import State, Workflow
from warren.kube import kubeconfig


def follow(
    cluster: Cluster, *arguments: str, **environment: str
) -> Generator[Workflow, None, None]:
    """Submit a job, and return its Workflow as it changes, until it is gone."""
    access = kubeconfig.load(cluster.state.kubeconfig)
    kind = kinds.WORKFLOW
    path = f"/apis/{kind.group}/{kind.version}/{kind.plural}?watch=true"
    server = urlsplit(access.server).netloc
    connection = http.client.HTTPSConnection(server, context=access.tls(), timeout=SECONDS)
    with closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Bearer {access.token}"})
        events = connection.getresponse()
        assert events.status == 200
        # It may be killed with the rest of the cluster: the Workflow tells of its success.
        with cluster.started("submit", *arguments, **environment):
            for line in events:
                event = json.loads(line)
                if event["type"] == "DELETED":
                    return
                yield read(event["object"], Workflow)


def at(
    cluster: Cluster, state: State, action: Callable[[], None], *arguments: str, **environment: str
) -> str:
    """Submit a job, do a action the moment its Workflow is in a state, and return the job's id."""
    with closing(follow(cluster, *arguments, **environment)) as changes:
        for workflow in changes:
            if workflow.status.state is state:
                action()
                return str(workflow.spec.job_id)
    raise AssertionError(f"the Workflow was never seen in {state}")
