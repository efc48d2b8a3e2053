"""What is wrong with a job that is to ask for copies while it runs (dws-spec section 18)."""

from collections.abc import Iterator

from warren.directives.diagnostics import Mistake, alternatives
from warren.directives.parse import Directive
from warren.dws.offload import copyservice
from warren.dws.validation.facts import Facts
from warren.dws.validation.jobdirectives import JobDirectives, value_of


def offload_mistakes(directive: Directive, job: JobDirectives, facts: Facts) -> Iterator[Mistake]:
    """Find why a job could ask for copies while it runs, as it says, and would get none."""
    requires = value_of(directive, "requires")
    if (
        requires is None
        or copyservice.REQUIRES_WORD not in requires.text.split(",")
        or not facts.has_offload
    ):
        return
    if job.container_index is not None:
        yield directive.mistake(
            requires,
            "A job with a container cannot ask for copies while it runs: both are found by the "
            "variable NNF_CONTAINER_PORTS.",
            f"Leave out the container, or {copyservice.REQUIRES_WORD}.",
        )
    types = [each.values.get("type") for each in job.jobdws.values()]
    for name in job.persistentdw_indexes:
        instance = (facts.instances or {}).get(name)
        types.append(instance.fs_type if instance is not None else None)
    if not job.may_have_unknown_names and all(
        each in copyservice.TYPES_MOUNTED_ONCE for each in types
    ):
        yield directive.mistake(
            requires,
            "Copies can be asked for while the job runs of storage that rabbits mount beside its "
            f"compute nodes, and {alternatives(sorted({*filter(None, types)}))} is for one of them "
            "at a time.",
            "Make it of type gfs2 or lustre.",
        )
