"""The number of random histories that a property test tries: its own number, or that of
`make properties COUNT=` if it is larger.
"""

from __future__ import annotations

import os

EXAMPLES_VARIABLE = "ANTIPODE_EXAMPLES"


def examples(wanted: int) -> int:
    """For `settings(max_examples=examples(50))`."""
    return max(wanted, int(os.environ.get(EXAMPLES_VARIABLE, "0")))
