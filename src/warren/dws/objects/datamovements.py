"""NnfDataMovements: copies of one rabbit."""

from warren.base.times import parse_rfc3339
from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta, Reference


class MovementEnd(Struct, frozen=True):
    """Where a copy comes from, or where it goes."""

    path: str
    storage_reference: Reference = Reference()


class UserConfig(Struct, frozen=True):
    dryrun: bool = False


class NnfDataMovementSpec(Struct, frozen=True):
    source: MovementEnd
    destination: MovementEnd
    user_id: int = 0
    group_id: int = 0
    cancel: bool = False
    user_config: UserConfig = UserConfig()


class CommandStatus(Struct, frozen=True):
    progress: int | None = None
    files: int | None = None
    data: str = ""
    rate: str = ""
    last_message: str = ""
    last_message_time: str | None = None
    """When it last went on."""


class NnfDataMovementStatus(Struct, frozen=True):
    state: str = ""
    status: str = ""
    message: str = ""
    restarts: int = 0
    end_time: str | None = None
    """When the last try has ended."""
    command_status: CommandStatus | None = None
    error: Error | None = None

    @property
    def last_progress_at(self) -> float | None:
        """When the copy last went on, in seconds since the epoch."""
        last = self.command_status.last_message_time if self.command_status else None
        return parse_rfc3339(last) if last else None


class NnfDataMovement(Struct, frozen=True):
    metadata: Meta
    spec: NnfDataMovementSpec
    status: NnfDataMovementStatus = NnfDataMovementStatus()
