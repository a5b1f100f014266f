"""How many random histories a property test tries: what it asks for, or as many as
`make properties COUNT=` says if that is more.
"""

from __future__ import annotations

import os

EXAMPLES_VARIABLE = "ANTIPODE_EXAMPLES"


def examples(wanted: int) -> int:
    """For `settings(max_examples=examples(50))`."""
    return max(wanted, int(os.environ.get(EXAMPLES_VARIABLE, "0")))
