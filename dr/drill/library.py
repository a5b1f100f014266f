"""The ready drills: plans in `deploy/drills/` for any pair of sites.

Such a plan uses the placeholders `$link`, `$active`, `$standby`, `$active_broker`,
`$standby_broker` and `$topic`, which are replaced before the plan is read. Each run gets a new
topic, because the checkers expect each record once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

import yaml

from dr.drill.plan.drill_plan import DrillPlan, parse_plan
from runtime.process import OperationalFailure

DIRECTORY: Final = Path(__file__).resolve().parents[2] / "deploy" / "drills"
EXAMPLE: Final = {
    "link": "a-b",
    "active": "a",
    "standby": "b",
    "active_broker": "a/broker-1",
    "standby_broker": "b/broker-1001",
    "topic": "drill",
}


def names() -> list[str]:
    """The ready drills, by name."""
    return sorted(file.stem for file in DIRECTORY.glob("*.yaml"))


def ready_plan(name: str, values: Mapping[str, str] = EXAMPLE) -> DrillPlan:
    """The plan of a ready drill with the given values for the keys of `EXAMPLE`. Raises
    OperationalFailure for an unknown name.
    """
    if name not in names():
        raise OperationalFailure(f"no drill is called {name!r}; accepted: a YAML file, or one of {', '.join(names())}")
    file = DIRECTORY / f"{name}.yaml"
    return parse_plan(yaml.safe_load(Template(file.read_text(encoding="utf-8")).substitute(values)), where=name)
