"""Groups' offsets between two sites that are mirrored both ways under the same names, against logs
in which every record has a name.
"""

from __future__ import annotations

import copy

from hypothesis import example, given
from hypothesis import strategies as st

from mirror.translate.core import both_ways
from mirror.translate.core.translation import Translation

# A step: a site gets new records, or a link copies so many records. Notes of links may be old.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3)),
        st.tuples(st.sampled_from(["a-b", "b-a"]), st.integers(1, 5)),
    ),
    max_size=40,
)
Steps = list[tuple[str, int]]


class Sites:
    """Two logs of names, and the links between them."""

    def __init__(self) -> None:
        self.logs: dict[str, list[str]] = {"a": [], "b": []}
        self.links = {"a-b": Translation(), "b-a": Translation()}
        self._made = 0

    def do(self, who: str, count: int) -> None:
        for _ in range(count):
            if who in self.logs:
                self._made += 1
                self.logs[who].append(f"{who}{self._made}")
            else:
                self._carry(self.links[who], who[0], who[-1])

    def _carry(self, link: Translation, source: str, target: str) -> None:
        """The next record of the source: over if it came into being there, else left out."""
        position, here, there = link.position, self.logs[source], self.logs[target]
        if position.source_next >= len(here):
            return
        record = here[position.source_next]
        if record.startswith(source):
            link.map.append(position.source_next, len(there), 1)
            there.append(record)
            position.target_next = len(there)
        position.source_next += 1


def played(steps: Steps) -> Sites:
    sites = Sites()
    for who, count in steps:
        sites.do(who, count)
    return sites


@given(STEPS, st.integers(0, 40))
def test_a_group_is_never_ahead_however_old_the_notes_of_the_opposite_link_are(steps: Steps, noted_before: int) -> None:
    sites = Sites()
    noted = copy.deepcopy(sites.links)
    for number, (who, count) in enumerate(steps):
        sites.do(who, count)
        if number < noted_before:
            noted = copy.deepcopy(sites.links)
    for source, target in (("a", "b"), ("b", "a")):
        link, opposite = sites.links[f"{source}-{target}"], noted[f"{target}-{source}"]
        for offset in range(len(sites.logs[source]) + 1):
            has_read = set(sites.logs[source][:offset])
            there = both_ways.downstream(link, opposite, offset)
            assert set(sites.logs[target][:there]) <= has_read
        for offset in range(len(sites.logs[target]) + 1):
            has_read = set(sites.logs[target][:offset])
            here = both_ways.upstream(link, opposite, offset)
            assert set(sites.logs[source][:here]) <= has_read


@given(STEPS, st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
@example(steps=[("a", 1), ("a-b", 1), ("a", 1), ("a-b", 1), ("b", 1), ("b-a", 3)], noted=4, ended=0, opposite=0)
def test_a_reader_of_both_links_notes_is_never_ahead(steps: Steps, noted: int, ended: int, opposite: int) -> None:
    """Each was true so many steps ago: the link's own notes, where the source ended, and before
    that the opposite link's notes.
    """
    moments = [copy.deepcopy(sites := Sites())]
    for who, count in steps:
        sites.do(who, count)
        moments.append(copy.deepcopy(sites))
    link_then, end_then, opposite_then = (
        moments[-1 - min(ago, len(steps))] for ago in (noted, ended, ended + opposite)
    )
    for source, target in (("a", "b"), ("b", "a")):
        link, back = link_then.links[f"{source}-{target}"], opposite_then.links[f"{target}-{source}"]
        is_complete = link.position.source_next >= len(end_then.logs[source])
        for offset in range(len(sites.logs[source]) + 1):
            has_read = set(sites.logs[source][:offset])
            there = both_ways.downstream(link, back, offset, is_link_complete=is_complete)
            assert set(sites.logs[target][:there]) <= has_read
        for offset in range(len(sites.logs[target]) + 1):
            has_read = set(sites.logs[target][:offset])
            here = both_ways.upstream(link, back, offset)
            assert set(sites.logs[source][:here]) <= has_read


@given(STEPS)
def test_with_both_links_up_to_date_a_group_reads_nothing_again_that_lies_before_what_it_has_not_read(
    steps: Steps,
) -> None:
    sites = played([*steps, ("a-b", 200), ("b-a", 200), ("a-b", 200)])
    for source, target in (("a", "b"), ("b", "a")):
        link, opposite = sites.links[f"{source}-{target}"], sites.links[f"{target}-{source}"]
        theirs = sites.logs[target]
        assert sorted(theirs) == sorted(sites.logs[source])
        for offset in range(len(theirs) + 1):
            has_read = set(sites.logs[source][:offset])
            first_unread = next((at for at, record in enumerate(theirs) if record not in has_read), len(theirs))
            assert both_ways.downstream(link, opposite, offset) == first_unread


@given(STEPS)
def test_a_group_that_goes_to_and_fro_is_not_carried_forward_by_that(steps: Steps) -> None:
    sites = played(steps)
    there, back = sites.links["a-b"], sites.links["b-a"]
    for offset in range(len(sites.logs["a"]) + 1):
        moved = both_ways.downstream(there, back, offset)
        assert both_ways.downstream(back, there, moved) <= offset
