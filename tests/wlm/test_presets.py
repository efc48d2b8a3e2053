"""A site's names for directives."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness import virtual
from tests.harness.world import opened
from warren.base.errors import UserMistake
from warren.daemons.compose import Control
from warren.instance.config import Config
from warren.instance.rabbittable import RabbitTable
from warren.lifecycle.states import Result
from warren.wlm.presets import Presets

XFS = "#DW jobdw type=xfs capacity=1GiB name=scratch"
RAW = "#DW jobdw type=raw capacity=1GiB name=bare"
PRESETS = {"fast": (XFS,), "both": (XFS, RAW)}


def spec(dw: Any) -> dict[str, Any]:
    return {"attributes": {"system": {"duration": 0.0, "dw": dw}}, "resources": []}


@pytest.mark.parametrize(
    ("given_", "found"),
    [
        ("fast", [XFS]),
        (" fast\n", [XFS]),
        (["both", RAW], [XFS, RAW, RAW]),
        (["fast", "both"], [XFS, XFS, RAW]),
    ],
)
def test_a_name_stands_for_its_directives(given_: Any, found: list[str]) -> None:
    """coral2-spec section 13."""
    before = spec(given_)
    assert Presets(PRESETS)(before) == spec(found)
    assert before == spec(given_)


@pytest.mark.parametrize("dw", [XFS, [XFS, RAW], f"{XFS}\n{RAW}", "", [], f"x {XFS}"])
def test_what_names_no_preset_stays_as_it_is(dw: Any) -> None:
    assert Presets(PRESETS)(spec(dw)) == spec(dw)
    assert Presets({})(spec("fast")) == spec("fast")


@pytest.mark.parametrize(
    ("dw", "words"),
    [
        ("fats", "'fats' is neither a #DW directive nor a preset: did you mean 'fast'?"),
        ([XFS, "slow"], "'slow' is neither .*: take both or fast"),
    ],
)
def test_a_name_that_there_is_not_is_refused_with_those_that_there_are(dw: Any, words: str) -> None:
    with pytest.raises(UserMistake, match=words):
        Presets(PRESETS)(spec(dw))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from(["attributes", "system", "dw", "x"]), each, max_size=3)
    ),
)


@given(JSON)
def test_what_is_no_jobspec_is_left_to_be_refused(found: Any) -> None:
    with contextlib.suppress(UserMistake):
        Presets(PRESETS)(found)


def test_a_job_that_says_a_name_has_its_storage() -> None:
    async def main() -> None:
        async with opened() as world:
            world.config = Config(rabbit=RabbitTable(presets={"fast": XFS}))

            async def life(control: Control) -> None:
                job = await world.submit(control, nodes=1, attributes={"dw": "fast"})
                ended = await world.ended(control, job)
                assert ended.job.result is Result.COMPLETED
                assert "DW_JOB_scratch" in world.seen["0"]

            await world.live(life)

    virtual.run(main())
