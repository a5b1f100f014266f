"""The drills that are ready to run: plans in `deploy/drills/`, for any pair of sites.

Such a plan names the link, its sites, a broker of each and the drill's own topic by `$link`,
`$active`, `$standby`, `$active_broker`, `$standby_broker` and `$topic`; the values are put in
before it is read. The topic is a new one for each run, because the checkers expect each record
once.
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
    """The plan of a ready drill with the values of `EXAMPLE`'s keys put in. OperationalFailure for
    another name.
    """
    if name not in names():
        raise OperationalFailure(f"no drill is called {name!r}; accepted: a YAML file, or one of {', '.join(names())}")
    file = DIRECTORY / f"{name}.yaml"
    return parse_plan(yaml.safe_load(Template(file.read_text(encoding="utf-8")).substitute(values)), where=name)
