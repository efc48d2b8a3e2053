"""What takes another kernel than most machines have, each in a guest of its own kind."""

from tools.guests.machine import network

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


def test_a_volume_is_attached_over_the_network_and_survives_its_rabbit(guests: Guests) -> None:
    disk = guests.disk("flash", 1024)
    modules = ["dm-mod", "xfs", "nvmet-tcp"]
    first, second = (
        Check(file="check_nvme_rabbit.py", modules=modules, disks=[disk], name=name, configfs=True)
        for name in ("first", "second")
    )
    client = Check(file="check_nvme_node.py", modules=["xfs", "nvme-tcp"], name="node")
    together = network()
    with guests.guest(2, client, together) as node:
        with guests.guest(1, first, together) as rabbit:
            guests.wait("writing", node, rabbit)
        with guests.guest(1, second, together) as rabbit:
            guests.wait("mounted once more", node, rabbit)
        guests.tell("the rabbit is gone")
        assert node.wait() == 0, node.said()
