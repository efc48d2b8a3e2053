"""What a site says of volumes over a network."""

from pathlib import Path

import pytest

from warren.base.errors import UserMistake
from warren.controllers import heartbeats
from warren.daemons import agentconfig
from warren.daemons.agentconfig import Config
from warren.daemons.network import Network, compute_flash, refusal
from warren.dws.rabbits import links
from warren.lifecycle import tables
from warren.node.filesystems import DlmCluster
from warren.node.nvmehost import NvmeTimeouts, TransportAddress


def network(text: str = "") -> Network:
    return tables.parse(text, Network, "agent.toml")


def test_rabbits_are_found_by_their_names_where_nothing_else_is_said() -> None:
    assert network().rabbit_addresses() == {}
    assert network().nvme_timeouts() == NvmeTimeouts()
    assert refusal(network(), is_rabbit=False) is None


def test_a_rabbit_must_know_where_it_listens() -> None:
    words = refusal(network(), is_rabbit=True)

    assert words is not None
    assert words.startswith("network.listen: ")
    assert refusal(network('listen = "fd00::1"'), is_rabbit=True) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", TransportAddress(host="10.0.0.1", port=4000)),
        ("10.0.0.1:4421", TransportAddress(host="10.0.0.1", port=4421)),
        ("r0-hsn.example.org:4421", TransportAddress(host="r0-hsn.example.org", port=4421)),
        ("fd00::1", TransportAddress(host="fd00::1", port=4000)),
        ("[fd00::1]", TransportAddress(host="fd00::1", port=4000)),
        ("[fd00::1]:4421", TransportAddress(host="fd00::1", port=4421)),
    ],
)
def test_addresses_are_written_as_everywhere(text: str, address: TransportAddress) -> None:
    assert network(f'port = 4000\nrabbits.r0 = "{text}"').rabbit_addresses() == {"r0": address}


def test_times_are_policy_and_the_longest_is_without_end() -> None:
    said = network('connect = "1m"\nkeep-alive = 10\nreconnect = "3s"\nlost = "infinity"')

    assert said.nvme_timeouts() == NvmeTimeouts(
        connect=60.0, keep_alive=10, reconnect=3, controller_loss=None
    )


def test_links_are_tested_by_policy_or_not_at_all() -> None:
    assert network().link_policy() == links.LinkTestPolicy(interval=30.0, failures=3)
    said = network('probe = "1m"\nprobe-timeout = "2s"\nprobe-failures = 5')
    assert said.link_policy() == links.LinkTestPolicy(interval=60.0, failures=5)
    assert said.nvme_timeouts() == NvmeTimeouts(answer=2.0)
    assert not network('probe = "infinity"\nprobe-failures = 1').link_policy().enabled


@pytest.mark.parametrize(
    ("probe", "failures", "refused"),
    [(5, 3, True), (25, 3, True), (26, 3, False), (30, 1, True), (10, 6, True), (11, 6, False)],
)
def test_a_link_is_lost_later_than_its_rabbit_is_known_to_be_gone(
    probe: int, failures: int, refused: bool
) -> None:
    text = f"probe = {probe}\nprobe-failures = {failures}"
    if refused:
        words = f"agent.toml: probe: {failures} tests may fail within .* s, and it takes 40 s"
        with pytest.raises(UserMistake, match=words):
            network(text)
    else:
        assert (
            network(text).link_policy().min_detection_seconds
            > heartbeats.DEFAULT_TIMING.lease_duration
        )


def test_machines_that_share_volumes_have_a_name_together() -> None:
    assert network().dlm_cluster() is None
    assert network('cluster = "site"').dlm_cluster() == DlmCluster(name="site", journals=18)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('listen = "rabbit-0"', "listen: 'rabbit-0' is no IP address"),
        ('rabbits.r0 = "10.0.0.1:x"', "rabbits.r0: '10.0.0.1:x' is no address with a port"),
        ('rabbits.r0 = ":4420"', "rabbits.r0: ':4420' is no address with a port"),
        ('rabbits.r0 = "a:70000"', "rabbits.r0: 'a:70000' is no address with a port"),
        ('rabbits.r0 = ""', "rabbits.r0: '' is no address"),
        ("lost = 0.5", "lost: is not from 1 s to"),
        ('keep-alive = "infinity"', "keep-alive: is not from 1 s to"),
        ("probe = 0", "probe: is not from 1 s to"),
        ("probe-timeout = 31", "probe-timeout: is not from 1 s to 30 s"),
        ("probe-failures = 0", "probe-failures"),
        ('cluster = "my site"', "cluster: 'my site' is no name of a cluster"),
        ('cluster = "{userid}"', "cluster: '{userid}' is no name of a cluster"),
        ('secret = "key"', "secret: 'key' is no absolute path"),
        ("port = 0", "port"),
        ("ports = 4420", "ports"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, words: str) -> None:
    with pytest.raises(UserMistake) as caught:
        network(text)

    assert words in str(caught.value)
    assert str(caught.value).startswith("agent.toml: ")


def secret(place: Path, text: str = "a" * 32, mode: int = 0o600) -> Network:
    file = place / "secret"
    file.write_text(f"{text}\n")
    file.chmod(mode)
    return network(f'secret = "{file}"')


def test_a_secret_is_what_stands_in_its_file(tmp_path: Path) -> None:
    assert network().read_secret() is None
    assert secret(tmp_path).read_secret() == b"a" * 32


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_secret_that_others_could_know_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UserMistake, match=r"^network.secret: .* is not for its owner alone: "):
        secret(tmp_path, mode=mode).read_secret()


def test_a_secret_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"^network.secret: .* has fewer than 32 bytes: "):
        secret(tmp_path, "a" * 31).read_secret()


def test_an_agent_whose_secret_is_missing_does_not_start(tmp_path: Path) -> None:
    config = Config(network=network(f'secret = "{tmp_path}/none"'), namespace="/n")
    told = agentconfig.refusal(config, is_rabbit=False)

    assert told == f"network.secret: {tmp_path}/none: No such file or directory"


def test_an_agent_has_its_nodes_prove_who_they_are(tmp_path: Path) -> None:
    made = secret(tmp_path)
    _, host = compute_flash(made, "node1")

    assert host._secret == b"a" * 32
