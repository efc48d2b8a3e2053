"""What is known of a job on this node, and how it is written, on the wire and on disk."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from warren.base.errors import UserMistake
from warren.lifecycle import tables

JOBID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]{0,254}\Z"
"""How job ids look: `2.pbshost`, and `21[1].pbshost` for a part of an array."""


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a workload manager says of a job when it begins."""

    jobid: Annotated[str, msgspec.Meta(pattern=JOBID_PATTERN)]
    uid: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 2)]
    exclusive: bool
    """Whether no other job has this node."""


class Stage(StrEnum):
    """Where a job is on this node."""

    STARTING = "starting"
    """The commands of its start have not all succeeded."""
    ACTIVE = "active"
    ENDING = "ending"
    """The commands of its end have not all succeeded."""


class RegisteredJob(msgspec.Struct, frozen=True, gc=False):
    """A job that is registered."""

    registration: Registration
    stage: Stage
    since: float
    """When it was registered, in seconds since the epoch."""


class _Record(msgspec.Struct, frozen=True, gc=False):
    jobid: str
    uid: int
    exclusive: bool
    stage: Stage
    since: float


class Removal(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A job that is registered no more, as the journal says it."""

    gone: str
    """The job's id."""


_record_decoder: Final = msgspec.json.Decoder(_Record)
_removal_decoder: Final = msgspec.json.Decoder(Removal)
_registration_decoder: Final = msgspec.json.Decoder(Registration)
_encoder: Final = msgspec.json.Encoder()


def read_request(body: bytes) -> Registration:
    """Read what a POST says. Raises UserMistake."""
    try:
        return _registration_decoder.decode(body)
    except msgspec.ValidationError as error:
        problem, path = tables.explain(error, Registration)
        raise UserMistake(f"{path}: {problem}" if path else problem) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserMistake(f"the body is not JSON: {error}") from error


def encode(job: RegisteredJob) -> bytes:
    """Write a job as JSON, for clients and for the journal."""
    registration = job.registration
    return _encoder.encode(
        _Record(
            registration.jobid,
            registration.uid,
            registration.exclusive,
            job.stage,
            round(job.since, 3),
        )
    )


def encode_removal(jobid: str) -> bytes:
    """Return the journal's record that a job is registered no more."""
    return _encoder.encode(Removal(jobid))


def decode_record(record: bytes) -> RegisteredJob | Removal:
    """Read a record of the journal."""
    if record.startswith(b'{"gone"'):
        return _removal_decoder.decode(record)
    decoded = _record_decoder.decode(record)
    return RegisteredJob(
        Registration(decoded.jobid, decoded.uid, decoded.exclusive), decoded.stage, decoded.since
    )
