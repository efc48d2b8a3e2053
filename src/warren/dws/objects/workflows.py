"""Workflows: the storage of one job, through its seven states."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from warren.base.objects import Key
from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Meta, Reference


class State(StrEnum):
    """The seven states of a Workflow, in order."""

    PROPOSAL = "Proposal"
    SETUP = "Setup"
    DATA_IN = "DataIn"
    PRE_RUN = "PreRun"
    POST_RUN = "PostRun"
    DATA_OUT = "DataOut"
    TEARDOWN = "Teardown"


class WorkflowSpec(Struct, frozen=True):
    desired_state: State
    job_id: int | str = msgspec.field(name="jobID", default=0)
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)
    wlm_id: str = msgspec.field(name="wlmID", default="")
    dw_directives: tuple[str, ...] = msgspec.field(name="dwDirectives", default=())
    hurry: bool = False
    force_ready: bool = False


class DriverStatus(Struct, frozen=True):
    """One piece of work of a driver, in one state, on one directive."""

    driver_id: str = msgspec.field(name="driverID")
    dwd_index: int
    watch_state: State
    status: str = "Pending"
    completed: bool = False
    message: str = ""
    error: str = ""
    complete_time: str | None = None


class SecretReference(Struct, frozen=True):
    """Where a Secret is."""

    secret_name: str
    secret_namespace: str

    @property
    def key(self) -> Key:
        return Key(self.secret_namespace, self.secret_name)


class WorkflowStatus(Struct, frozen=True):
    state: State | None = None
    ready: bool = False
    status: str = ""
    message: str = ""
    env: Mapping[str, str] = {}
    drivers: tuple[Mapping[str, Any], ...] = ()
    directive_breakdowns: tuple[Reference, ...] = ()
    computes: Reference | None = None
    requires: tuple[str, ...] = ()
    workflow_token: SecretReference | None = None
    desired_state_change: str | None = None
    elapsed_time_last_state: str | None = None


class Workflow(Struct, frozen=True):
    metadata: Meta
    spec: WorkflowSpec
    status: WorkflowStatus = WorkflowStatus()

    @property
    def has_reached_desired_state(self) -> bool:
        """Whether the state that is desired is there, and done with."""
        return self.status.state is self.spec.desired_state and self.status.ready
