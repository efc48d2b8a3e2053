"""New random keys: those that sign tokens, and those of the SSH of MPI applications.

The library that makes them is imported only where one is needed.
"""

from warren.dws.containers.mpi import SshKey


def new_token_key() -> bytes:
    """Return a P-521 key as PKCS8 in DER, with which a Workflow's token is signed."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP521R1()).private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def new_ssh_key() -> SshKey:
    """Return a key pair by which the launcher and the workers of an application know each other."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return SshKey(private=private.decode(), public=public.decode())
