"""Several registries of one process on one page."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from runtime.metrics import OnePage


def registry_of(link: str, records: int) -> CollectorRegistry:
    """The figures of one link, and one that the process has."""
    registry = CollectorRegistry()
    Counter("records", "Records.", ["link"], registry=registry).labels(link).inc(records)
    Histogram("seconds", "Seconds.", ["link"], buckets=(1,), registry=registry).labels(link).observe(0.5)
    Counter("deaths", "Of the process.", registry=registry).inc(3)
    return registry


def test_families_of_one_name_become_one_and_what_all_have_alike_is_there_once() -> None:
    page = OnePage.of([registry_of("a-b", 5), registry_of("b-a", 7)])
    lines = generate_latest(page).decode().splitlines()
    assert [line for line in lines if line.startswith("records_total")] == [
        'records_total{link="a-b"} 5.0',
        'records_total{link="b-a"} 7.0',
    ]
    assert [line for line in lines if line.startswith("seconds_count")] == [
        'seconds_count{link="a-b"} 1.0',
        'seconds_count{link="b-a"} 1.0',
    ]
    assert [line for line in lines if line.startswith("deaths_total")] == ["deaths_total 3.0"]
    assert len([line for line in lines if line.startswith("# TYPE records_total ")]) == 1
