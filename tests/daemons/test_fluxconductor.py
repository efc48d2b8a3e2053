"""The conductor of a real Flux, as far as it needs none."""

from warren.daemons.fluxconductor import settings_of
from warren.instance import config


def test_a_sites_limits_and_who_places_flash_reach_the_conductor() -> None:
    table = config.parse("[rabbit.policy.maximums]\nxfs = 100\n").rabbit
    policy = settings_of(table, scheduler_places_flash=False).placement_policy
    assert policy.max_gib_per_node == {"xfs": 100}
    assert not policy.scheduler_places_flash
