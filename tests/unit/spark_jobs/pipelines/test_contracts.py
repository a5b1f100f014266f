"""Data contracts: what contradicts one in topics and records, what a file may contain, and the jobs
of the road pipeline, which have its topics.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from runtime.process import OperationalFailure
from spark_jobs.pipelines import road_ingest, road_produce
from spark_jobs.pipelines.core.contracts import FoundTopic, Severity, record_findings, topic_findings
from spark_jobs.pipelines.core.road_records import road_record
from spark_jobs.pipelines.data_contracts import load_contract, own_contract, parse_contract
from spark_jobs.pipelines.road_ingest import sighting_schema

ROAD = own_contract("road")
BOUND = {"max.message.bytes": "65536"}
FITTING = {
    "road-data": FoundTopic(2, BOUND),
    "road-control": FoundTopic(1, {}),
    "road-dead-letter": FoundTopic(1, {}),
    "road-alerts": FoundTopic(1, {}),
    "road-counts": FoundTopic(1, {}),
}
SMALL = """
name: small
prefix: s-
topics:
  s-one: {schema: one}
schemas:
  one:
    text: {type: string, pattern: '[a-z]+', refused: ['no']}
    count: {type: integer, is_optional: true}
    share: {type: number, is_optional: true}
    is_new: {type: boolean, is_optional: true}
"""


def findings(**changed: FoundTopic | None) -> list[tuple[str, str, str]]:
    topics = {**FITTING, **{f"road-{name.replace('_', '-')}": topic for name, topic in changed.items()}}
    found = topic_findings(ROAD, {name: topic for name, topic in topics.items() if topic is not None})
    return [(one.topic, one.severity.value, one.text) for one in found]


def test_topics_that_fit_have_no_findings_and_a_site_may_have_a_control_topic_of_its_own() -> None:
    assert findings() == []
    assert findings(control_b=FoundTopic(1, {})) == []
    assert findings(data=FoundTopic(64, BOUND | {"retention.ms": "1"})) == []


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "partitions: 1. Fewer than 2 leave disks and consumers idle"),
        (65, "partitions: 65. More than 64 cost brokers and controller more than they gain"),
    ],
)
def test_a_number_of_partitions_outside_the_range_is_a_warning(count: int, text: str) -> None:
    assert findings(data=FoundTopic(count, BOUND)) == [("road-data", "warning", text)]


def test_what_contradicts_the_contract_is_an_error() -> None:
    assert findings(alerts=None) == [("road-alerts", "error", "the topic is not there")]
    assert findings(data=FoundTopic(2, {"max.message.bytes": "1048588"})) == [
        ("road-data", "error", "max.message.bytes is 1048588, not 65536")
    ]
    assert findings(speeds=FoundTopic(1, {})) == [("road-speeds", "error", "contract road does not have this topic")]


def test_records_that_do_not_have_the_schema_are_named_by_offset() -> None:
    good = json.dumps(road_record(1, at_ms=0)).encode()
    bad = json.dumps(road_record(1, at_ms=0) | {"series": 1}).encode()
    found = list(record_findings(ROAD, "road-data", [(0, 7, good), (1, 8, bad), (1, 9, None)]))
    assert [one.text for one in found] == [
        "partition 1, offset 8: series is not of type string",
        "partition 1, offset 9: the value is not JSON",
    ]
    assert {one.severity for one in found} == {Severity.ERROR}
    assert list(record_findings(ROAD, "road-control-b", [(0, 0, b'{"command": "watch", "plate": "A1"}')])) == []
    assert list(record_findings(ROAD, "road-dead-letter", [(0, 0, bad)])) == []


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"text": "abc"}, None),
        ({"text": "abc", "count": 1, "share": 1, "is_new": True, "further": []}, None),
        ({"text": "no"}, None),
        ({"text": "NO"}, "text does not match [a-z]+"),
        ({"count": 1}, "the record lacks the field text"),
        ({"text": "abc", "count": 1.5}, "count is not of type integer"),
        ({"text": "abc", "count": True}, "count is not of type integer"),
        ({"text": "abc", "is_new": 1}, "is_new is not of type boolean"),
    ],
)
def test_a_record_has_the_fields_of_its_schema_and_may_have_more(
    record: dict[str, object], problem: str | None
) -> None:
    schema = parse_contract(SMALL, where="small.yaml").schemas["one"]
    assert schema.problem(json.dumps(record).encode()) == problem
    assert schema.refusal({"text": "no"}) == "text"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: small", "", "small.yaml: name=(not set) is not usable"),
        ("schema: one", "schema: two", "topic s-one has schema 'two': accepted are one"),
        ("s-one:", "one:", "topic one: accepted are names that begin with s-"),
        ("type: string", "type: text", "schemas.one.text.type='text' is not usable: Input should be 'string'"),
        ("[a-z]+", "[a-z", "accepted: a regular expression"),
        ("['no']", "[no]", "accepted: refused values of type string, not False"),
        ("{type: integer", "{type: integer, pattern: a", "accepted: a pattern with type string"),
        ("schema: one", "schema: one, partitions: {least: 3, most: 2}", "accepted: least up to most, not 3 to 2"),
        ("schema: one", "mirrored: true", "topics.s-one.mirrored"),
        ("name: small", "name: [", "contract small.yaml is not YAML"),
    ],
)
def test_a_file_that_is_no_contract_is_refused_with_its_key(old: str, new: str, message: str) -> None:
    with pytest.raises(OperationalFailure) as refused:
        parse_contract(SMALL.replace(old, new), where="small.yaml")
    assert message in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperationalFailure, match=r"cannot be read: .*No such file"):
        load_contract(tmp_path / "no-such.yaml")


def test_the_jobs_of_the_road_pipeline_use_topics_of_its_contract() -> None:
    def topics_of(parser: argparse.ArgumentParser, *names: str) -> dict[str, str]:
        return {name: parser.get_default(name) for name in names}

    ingest = topics_of(road_ingest.parser(), "data", "control", "dead_letter", "alerts")
    produce = topics_of(road_produce.parser(), "topic")
    schemas = {name: (ROAD.topic(topic) or pytest.fail(topic)).schema for name, topic in {**ingest, **produce}.items()}
    assert schemas == {
        "data": "sighting", "control": "command", "dead_letter": "", "alerts": "alert", "topic": "sighting"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  sighting:\n", "  seen:\n", "has no schema sighting"),
        (
            "    plate: {type: string, refused",
            "    plate: {type: string, is_optional: true, refused",
            "the field plate",
        ),
        ("    series:", "    offset:", "the field offset is a column of the ingest"),
    ],
)
def test_the_ingest_refuses_a_contract_without_the_fields_that_it_needs(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = (Path(road_ingest.__file__).parent / "contracts" / "road.yaml").read_text()
    file = tmp_path / "own.yaml"
    file.write_text(text.replace("schema: sighting", "schema: command").replace(old, new, 1))
    with pytest.raises(OperationalFailure, match=message):
        sighting_schema(file)
