"""Options that take a number of a range, with one message for each number outside of it."""

from __future__ import annotations

from typing import Any

import typer


def number_option(name: str, *, low: int, high: int, purpose: str, zero: str = "") -> Any:
    """An option that accepts the numbers from `low` to `high`, and 0 if `zero` says what it means;
    `purpose` is the help.
    """
    accepted = f"{low} to {high}"
    if zero:
        accepted = f"0 ({zero}) and {max(low, 1)} to {high}"

    def checked(number: int | None) -> int | None:
        if number is None or low <= number <= high or (zero and number == 0):
            return number
        raise typer.BadParameter(f"{number}: accepted are {accepted}")

    return typer.Option(name, callback=checked, help=f"{purpose} Accepted: {accepted}.")
