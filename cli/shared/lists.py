"""Lists as people give them to commands."""

from __future__ import annotations

from cli.shared.failures import usage_error


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list, without empty ones."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def split_patterns(option: str, text: str) -> tuple[str, ...]:
    """The patterns of a comma-separated list. A usage error names the option and the pattern."""
    from wire.rules.links import InvalidPattern, check_pattern

    patterns = split_list(text)
    for pattern in patterns:
        try:
            check_pattern(pattern)
        except InvalidPattern as error:
            raise usage_error(f"{option}: {error}; accepted are comma-separated regular expressions") from error
    return patterns
