"""The rules of table `rabbit`, for jobs of a broker, whose ingest does not know them.

A broker has no validator of ours: what `wlm.embedded.validator` refuses when a job is submitted
is refused here, before the job has a Workflow, and the rest by the Workflow's webhook.
"""

from collections.abc import Mapping
from typing import Any

from warren.base.errors import UserMistake
from warren.dws.persistent import instances
from warren.instance.rabbittable import RabbitTable
from warren.wlm import jobdirectives, view
from warren.wlm.presets import Presets


class SiteRules:
    """Presets, and the limits of users. A `jobs.Rules`."""

    def __init__(self, table: RabbitTable, owner: int) -> None:
        self._instance_owner = owner
        self.configure(table)

    def configure(self, table: RabbitTable) -> None:
        """Take other rules from now on."""
        self._table = table
        self._presets = Presets(table.directives)

    def expand_presets(self, jobspec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a jobspec with the directives of its presets. Unknown ones are left."""
        try:
            expanded: Mapping[str, Any] = self._presets(jobspec)
        except UserMistake:
            return jobspec
        return expanded

    def check_allowed(self, jobspec: Mapping[str, Any], userid: int) -> None:
        """Raise UserMistake for a jobspec that the site does not let this user have."""
        self._presets(jobspec)
        texts = jobdirectives.directives(jobspec)
        jobdirectives.check_directive_limits(texts or ())
        if not texts:
            raise UserMistake("The job's dw attribute holds no #DW directive.")
        view.failure_tolerance(jobspec)
        view.unsaved_results(jobspec, self._table.unsaved_results)
        view.storage_expiry(jobspec)
        created_names = instances.instance_names(texts, ("create_persistent",))
        if created_names and self._table.restricts_persistent and userid != self._instance_owner:
            raise UserMistake(
                "Only the owner of the Flux instance creates persistent storage at this site."
            )
