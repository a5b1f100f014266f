"""Compiled and interpreted brokers beside one peer: names of figures, and proof of the running
variant.
"""

from __future__ import annotations

from pathlib import Path

from bench.measuring.figures import Sample, Side
from bench.measuring.section_figures import rows
from bench.sections.brokers.compiled_modules import INTERPRETED, is_mapped, prefixed

MAPS = """\
7f00-7f01 r-xp 00000000 fe:00 11 /usr/lib/libc.so.6
7f02-7f03 r-xp 00000000 fe:00 12 /parts/compiled/0123/wire/batches/records.so
"""


def _sample(side: Side, mb_per_s: float, *prefixes: str) -> Sample:
    return Sample(
        section="compiled", case="produce, 1 KB", side=side, values=prefixed({"mb_per_s": mb_per_s}, prefixes)
    )


def test_the_peer_counts_beside_both_kinds_of_broker() -> None:
    found = rows(
        [
            _sample(Side.ANTIPODE, 300, ""),
            _sample(Side.ANTIPODE, 100, INTERPRETED),
            _sample(Side.PEER, 200, "", INTERPRETED),
        ]
    )
    assert [(row.figure, row.ours, row.theirs, row.ratio, row.is_reached) for row in found] == [
        ("throughput", 300, 200, 1.5, True),
        ("throughput, interpreted", 100, 200, 0.5, None),
    ]


def test_a_process_runs_compiled_modules_when_it_maps_their_files() -> None:
    assert is_mapped(MAPS, Path("/parts/compiled/0123"))
    assert not is_mapped(MAPS, Path("/parts/compiled/012"))
    assert not is_mapped("", Path("/parts/compiled/0123"))
