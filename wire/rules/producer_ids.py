"""Which site has given out a producer id. Pure."""

from __future__ import annotations

from typing import Final

PRODUCER_IDS_PER_SITE: Final = 1 << 40
"""Producer ids of site n start at n times this number, so that two sites never give out the same
id.
"""


def site_number_of(producer_id: int) -> int:
    """The number of the site whose range has the id; 0 also for ids of Apache Kafka."""
    return producer_id // PRODUCER_IDS_PER_SITE
