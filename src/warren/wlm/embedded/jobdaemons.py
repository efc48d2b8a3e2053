"""The daemons that jobs need, started on their nodes and stopped again by commands of the site.

A job's daemons start when its storage is mounted, before its tasks, and are stopped when these
have ended, before its nodes unmount (ADR 055). Which ones it needs stands in the jobspec, where
the conductor has written what the breakdowns of its directives name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren.instance.exec.perilog import CommandNotStarted, Step
from warren.instance.storagetables import DaemonTable
from warren.lifecycle import tables
from warren.lifecycle.perilog import Settings
from warren.rfc import jobspec as jobspecs
from warren.rfc.fluid import JobId
from warren.wlm.codec import BINDING, DAEMONS_EPILOG, DAEMONS_PROLOG, PROLOG


class DaemonCommands:
    """The `PerilogSteps` of daemons: what starts and stops the daemons that a job needs."""

    name: Final = "daemons"
    keeps_background: Final = True

    def __init__(self, table: Mapping[str, DaemonTable]) -> None:
        self._table = table

    def settings(self, spec: Mapping[str, Any]) -> Settings:
        needs_daemons = bool(_required_daemons(spec))
        return Settings(
            prolog_name=DAEMONS_PROLOG,
            epilog_name=DAEMONS_EPILOG,
            earlier_prolog=PROLOG,
            has_prolog=needs_daemons,
            has_epilog=needs_daemons,
        )

    def steps(self, job: JobId, spec: Mapping[str, Any], description: str) -> Sequence[Step]:
        is_start = description == DAEMONS_PROLOG
        workflow = BINDING.workflow_key(job)
        workflow_variables = {
            "DW_WORKFLOW_NAME": workflow.name,
            "DW_WORKFLOW_NAMESPACE": workflow.namespace,
        }
        required = _required_daemons(spec)
        all_steps = []
        for name in required if is_start else reversed(required):
            daemon = self._table.get(name)
            if daemon is None:
                raise CommandNotStarted(
                    f"the daemon {name!r} is not in the site's configuration any more: submit "
                    "the job again without it, or ask an admin for it"
                )
            command = daemon.prolog if is_start else daemon.epilog
            if command:
                all_steps.append(
                    Step(
                        subject=f"{'prolog' if is_start else 'epilog'} of the daemon {name!r}",
                        argv=command,
                        per_rank=True,
                        timeout_seconds=tables.seconds(daemon.timeout) or None,
                        kill_seconds=tables.seconds(daemon.kill_timeout),
                        exit_on_first_error=is_start,
                        drains_on_failure=not is_start,
                        environment={**workflow_variables, "WARREN_DAEMON": name},
                    )
                )
        return all_steps


def _required_daemons(spec: Mapping[str, Any]) -> Sequence[str]:
    # What stands there in a job without directives its author has written.
    system = jobspecs.system(spec)
    return system.get("dw_requires") or () if "dw" in system else ()
