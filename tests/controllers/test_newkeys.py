"""Keys that were never used."""

from cryptography.hazmat.primitives import serialization

from warren.controllers.newkeys import new_ssh_key


def test_the_two_halves_of_an_ssh_key_belong_together_and_are_new_each_time() -> None:
    key = new_ssh_key()
    private = serialization.load_ssh_private_key(key.private.encode(), password=None)
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    assert public.decode() == key.public
    assert new_ssh_key().public != key.public
