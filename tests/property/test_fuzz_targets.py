"""The fuzz targets under random mutations of real messages, and every input that once showed a
defect.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, kept_inputs
from tests.support.examples import examples

EXAMPLES = {"recovery": 100}
GROWTH_KB_MAX = 256 * 1024
KEPT = [pytest.param(name, path, id=f"{name}-{path.name}") for name in TARGETS for path in kept_inputs(name)]


@st.composite
def _mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed with bytes that were replaced, left out or added."""
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(content)


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_messages_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(
        max_examples=examples(EXAMPLES.get(name, 300)),
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(data=_mutated(list(target.seeds())))
    def check(data: bytes) -> None:
        target.run(data)

    check()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < GROWTH_KB_MAX


@pytest.mark.parametrize(("name", "path"), KEPT)
def test_inputs_that_once_showed_a_defect_are_read_or_refused(name: str, path: Path) -> None:
    TARGETS[name].run(path.read_bytes())
