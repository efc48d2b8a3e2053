"""As whom the components of a cluster speak to its API."""

from typing import Final

CONTROLLERS: Final = "system:warren:controllers"
CONDUCTOR: Final = "system:warren:conductor"
OFFLOAD: Final = "system:warren:copy-offload"
INSTANCE: Final = "system:warren:instance"


def node_user(node: str) -> str:
    """Return the user as whom the agent of a node speaks to the API."""
    return f"system:warren:node:{node}"
