"""The profile that a directive takes, and that is copied for what it makes."""

from warren.base.objects import Object
from warren.directives.parse import Directive
from warren.dws.breakdown import allocationneeds
from warren.dws.breakdown.breakdownsnapshot import BreakdownSnapshot
from warren.dws.faults import Fault
from warren.dws.storage import storageprofiles


def choose(snapshot: BreakdownSnapshot, directive: Directive) -> Object:
    """Choose the profile that is to be copied, if the directive can be made by it. Raises Fault."""
    profile = storageprofiles.choose(directive.values.get("profile"), snapshot.decoded_profiles())
    allocationneeds.needs_of(directive, profile)
    name = profile.metadata.name
    raw_profile = next(each for each in snapshot.profiles if each["metadata"]["name"] == name)
    # Made before there were rules for it, or past them: its copy would be refused.
    for mistake in storageprofiles.mistakes(raw_profile):
        raise Fault(f"NnfStorageProfile {name} is wrong: {mistake}")
    return raw_profile
