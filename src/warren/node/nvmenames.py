"""What volumes and nodes are called on the network: pure, and the same on both of its ends.

All of it comes from the volume's rabbit and name, which comes from a UID, and from the node's
name: a rabbit that starts again offers what computes take for the same device, and no
name has to be told.
"""

import base64
import hmac
import uuid
import zlib
from functools import cached_property
from typing import Final

import msgspec

_UUID_NAMESPACE: Final = uuid.UUID("6f6f2c30-6a3f-5d0b-9d4e-0f6c2a1b7e58")
"""What UUIDs are made in. Another one makes running jobs lose their storage."""

_NQN_PREFIX: Final = "nqn.2014-08.org.nvmexpress:uuid:"
"""Of qualified names without a domain of one's own (NVMe base specification, section 4.5)."""

_SERIAL_LENGTH: Final = 20
_MODEL_LENGTH: Final = 40


class NvmeVolume(msgspec.Struct, frozen=True, dict=True):
    """One volume on the network: a subsystem of its own, so that each has hosts of its own."""

    rabbit: str
    volume: str

    @cached_property
    def nqn(self) -> str:
        """The subsystem's NVMe qualified name."""
        return f"{_NQN_PREFIX}{self._uuid('subsystem')}"

    @cached_property
    def serial(self) -> str:
        """The subsystem's serial number, of the length that there is for it."""
        return self._uuid("serial").hex[:_SERIAL_LENGTH]

    @cached_property
    def namespace_uuid(self) -> str:
        """The UUID of the only namespace; its NGUID is the same."""
        return str(self._uuid("namespace"))

    def _uuid(self, purpose: str) -> uuid.UUID:
        return uuid.uuid5(_UUID_NAMESPACE, f"{purpose} {self.rabbit}/{self.volume}")


def model_number(rabbit: str) -> str:
    """Return the model number of a rabbit's subsystems, by which they are known for its own."""
    digest = uuid.uuid5(_UUID_NAMESPACE, f"rabbit {rabbit}").hex[:8]
    printable_name = "".join(char if " " < char <= "~" else "-" for char in rabbit)
    return f"Warren {digest} {printable_name}"[:_MODEL_LENGTH].rstrip()


def host_id(node: str) -> str:
    """Return a node's host identifier."""
    return str(uuid.uuid5(_UUID_NAMESPACE, f"host {node}"))


def dhchap_key(secret: bytes, node: str) -> str:
    """Return the key by which a node proves to rabbits that it is that node (DH-HMAC-CHAP).

    It comes from what all machines of a site know, and says nothing of other nodes' keys. It is
    written as the NVMe base specification has it, with its CRC, and is used as it is.
    """
    key = hmac.digest(secret, host_nqn(node).encode(), "sha256")
    key_with_crc = key + zlib.crc32(key).to_bytes(4, "little")
    return f"DHHC-1:00:{base64.b64encode(key_with_crc).decode()}:"


def host_nqn(node: str) -> str:
    """Return a node's NVMe qualified name, which a rabbit lets in, or does not."""
    return f"{_NQN_PREFIX}{host_id(node)}"
