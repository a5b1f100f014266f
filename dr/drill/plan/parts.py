"""The common base of all parts of a plan: frozen values, no unknown keys, durations such as `10s`,
and the base class of steps.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000}


def parse_duration_ms(value: object) -> object:
    """Milliseconds of `10s`; anything else is left for the model to refuse."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return round(float(match[1]) * _UNIT_MS[match[2]])
    raise ValueError("accepted: a duration such as 500ms, 10s or 2m")


DurationMs = Annotated[int, BeforeValidator(parse_duration_ms), Field(ge=0)]


class PlanPart(BaseModel):
    """Base of all parts: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanStep(PlanPart):
    """Base of the steps; `verb` is the key in the file, `title` the name in reports."""

    verb: ClassVar[str]

    @property
    def title(self) -> str:
        """The step's name in reports and on the screen."""
        return self.verb.replace("_", " ")
