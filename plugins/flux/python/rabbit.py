"""Let jobs with storage that may run on rabbits have them, whatever their queue demands of nodes.

A frobnicator of Flux's ingest, which runs in Flux's Python, and changes a job as it is submitted.
Queues ask for properties of their compute nodes, which rabbits do not have. It runs after
`constraints`, which writes down what the job's queue asks for.
"""

from flux.job.frobnicator import FrobnicatorPlugin

RABBIT = {"properties": ["rabbit"]}


def widened(system):
    """Return the constraints that let a job have rabbits; None where they stay as they are.

    `system` is `attributes.system` of its jobspec. Raises ValueError where a site's configuration
    is wrong: a job without constraints belongs to no queue that keeps rabbits apart from nodes.
    """
    if "dw" not in system or not system.get("allow_rabbits"):
        return None
    if not system.get("constraints"):
        raise ValueError(
            "Misconfiguration: job must have constraints set where it has allow_rabbits: an admin "
            "gives its queue `requires`, and lists `rabbit` after `constraints` in "
            "ingest.frobnicator.plugins"
        )
    return {"or": [system["constraints"], RABBIT]}


class Frobnicator(FrobnicatorPlugin):
    """What Flux looks for in the module."""

    def frob(self, jobspec, userid, urgency, flags):
        """Change a job's constraints, where that is due."""
        constraints = widened(jobspec.attributes.get("system", {}))
        if constraints is not None:
            jobspec.setattr("system.constraints", constraints)
