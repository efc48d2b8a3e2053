"""What takes another kernel than most machines have, each in a guest of its own kind."""

from tools.guests.machine import network

from tests.vm.conftest import Check, Guests


def test_volume_groups_devices_that_fail_quotas_and_cgroups(guests: Guests) -> None:
    guests.check(
        Check(
            files=[
                "vm/inside/check_flash.py",
                "vm/inside/check_quota.py",
                # Here is no hierarchy but that of version 2.
                "instance/test_cgroups.py",
                "node/test_podmemory.py",
            ],
            modules=["dm-mod", "dm-thin-pool", "dm-flakey", "xfs", "ext4"],
            disks=[
                guests.disk("flash", 1024),
                guests.disk("weak", 512),
                guests.disk("global", 512),
            ],
        )
    )


def test_a_volume_is_attached_over_the_network_and_survives_its_rabbit(guests: Guests) -> None:
    disk = guests.disk("flash", 1024)
    modules = ["dm-mod", "xfs", "nvmet-tcp"]
    first, second = (
        Check(
            files=["vm/inside/check_nvme_rabbit.py"],
            modules=modules,
            disks=[disk],
            name=name,
            configfs=True,
        )
        for name in ("first", "second")
    )
    client = Check(files=["vm/inside/check_nvme_node.py"], modules=["xfs", "nvme-tcp"], name="node")
    together = network()
    with guests.guest(2, client, together) as node:
        with guests.guest(1, first, together) as rabbit:
            guests.wait("writing", node, rabbit)
        with guests.guest(1, second, together) as rabbit:
            guests.wait("mounted once more", node, rabbit)
        guests.tell("the rabbit is gone")
        assert node.wait() == 0, node.said()


def test_no_process_of_a_user_says_to_be_a_node_where_nodes_have_to_prove_it(
    guests: Guests,
) -> None:
    guests.check(
        Check(
            files=["vm/inside/check_nvme_secret.py"],
            modules=["dm-mod", "xfs", "nvmet-tcp"],
            disks=[guests.disk("flash", 1024)],
            name="rabbit",
            configfs=True,
        ),
        Check(files=["vm/inside/check_nvme_secret.py"], modules=["nvme-tcp"], name="node"),
    )


def test_a_gfs2_is_mounted_by_a_rabbit_and_its_node_at_the_same_time(guests: Guests) -> None:
    modules = ["dlm", "gfs2", "nvme-tcp"]
    guests.check(
        Check(
            files=["vm/inside/check_gfs2.py"],
            modules=[*modules, "dm-mod", "nvmet-tcp"],
            disks=[guests.disk("flash", 512)],
            name="rabbit",
            configfs=True,
        ),
        Check(files=["vm/inside/check_gfs2.py"], modules=modules, name="node", configfs=True),
    )


def test_agents_offer_attach_and_let_go_as_their_objects_say(guests: Guests) -> None:
    guests.check(
        Check(
            files=["vm/inside/check_agents.py"],
            modules=["dm-mod", "xfs", "nvmet-tcp"],
            disks=[guests.disk("flash", 512)],
            name="rabbit",
            configfs=True,
        ),
        Check(files=["vm/inside/check_agents.py"], modules=["xfs", "nvme-tcp"], name="node"),
    )
