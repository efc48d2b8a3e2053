"""R from the tables of a configuration of Flux."""

import tomllib

import pytest

from warren.base.errors import UserMistake
from warren.rfc import resource_set
from warren.scheduling import resourceconfig

TABLES = """
[rabbit]
mapping = "/etc/map"
tc_timeout = 5
[resource]
noverify = true
exclude = "n3"
[[resource.config]]
hosts = "n[1-3],r1"
cores = "0-3"
gpus = "0"
[[resource.config]]
hosts = "n[4,1]"
cores = "4"
properties = ["batch", "fast"]
"""


def test_a_host_has_what_any_table_gives_it() -> None:
    """By `flux R parse-config` of flux-core 0.88."""
    configuration = resourceconfig.read(tomllib.loads(TABLES), "it")
    found = resource_set.decode_all(resourceconfig.resource_set_of(configuration, "it"))

    assert [(each.rank, each.host) for each in found.nodes] == [
        (0, "n1"), (1, "n2"), (2, "n3"), (3, "r1"), (4, "n4"),
    ]  # fmt: skip
    assert [(each.cores, each.gpus) for each in found.nodes] == [
        ((0, 1, 2, 3, 4), (0,)), *[((0, 1, 2, 3), (0,))] * 3, ((4,), ()),
    ]  # fmt: skip
    assert found.properties == {"batch": (0, 4), "fast": (0, 4)}
    assert (configuration.resource.exclude, configuration.rabbit.mapping) == ("n3", "/etc/map")


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ("", r"it names no resources: add a table \[\[resource.config\]\]"),
        ("[[resource.config]]\ncores = '0'", "it: .*hosts"),
        ("[[resource.config]]\nhosts = 1", "it: .*hosts"),
        ("[[resource.config]]\nhosts = 'n1'\nscores = '0'", "it: .*scores"),
        ("[[resource.config]]\nhosts = 'n['\ncores = '0'", r"it: resource.config\[0\]: hostlist"),
        ("[[resource.config]]\nhosts = 'n'\ncores = 'x'", r"it: resource.config\[0\]: idset"),
        ("[[resource.config]]\nhosts = 'n[1-2]'", r"it: n\[1-2\] has no cores"),
    ],
)
def test_tables_that_describe_no_r_are_refused_with_the_place(tables: str, words: str) -> None:
    with pytest.raises(UserMistake, match=f"^{words}"):
        resourceconfig.resource_set_of(resourceconfig.read(tomllib.loads(tables), "it"), "it")
