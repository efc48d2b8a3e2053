"""What takes another kernel than most machines have, each in a guest of its own kind."""

from tests.vm.conftest import Check, Guests


def test_volumes_are_made_in_a_volume_group_and_devices_that_fail_are_told_of(
    guests: Guests,
) -> None:
    guests.check(
        Check(
            file="check_flash.py",
            modules=["dm-mod", "dm-thin-pool", "dm-flakey", "xfs", "ext4"],
            disks=[guests.disk("flash", 1024), guests.disk("weak", 512)],
        )
    )
