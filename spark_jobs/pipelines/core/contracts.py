"""A data contract as data: the topics of a pipeline and the schemas of their records, and what a
cluster's topics have that contradicts it. Pure.

A schema is the fields of a JSON object. A record may have further fields: a producer that adds one
breaks no consumer. `spark_jobs/pipelines/contracts/*.yaml` are contracts; `data_contracts.py` reads
them.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def is_of_type(value: object, name: str) -> bool:
    """True if the value has the type of a schema. Python's bool is an int, that of JSON is not."""
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


class FieldRule(NamedTuple):
    """The rule of one field. `pattern` is a regular expression on the whole string, "" for none;
    `refused` are values that a producer may send and a consumer may reject.
    """

    name: str
    type: str
    pattern: str = ""
    is_optional: bool = False
    refused: tuple[Any, ...] = ()

    def problem(self, record: Mapping[str, Any]) -> str | None:
        """What is wrong with the field, as a sentence; None for nothing."""
        value = record.get(self.name)
        if value is None:
            return None if self.is_optional else f"the record lacks the field {self.name}"
        if not is_of_type(value, self.type):
            return f"{self.name} is not of type {self.type}"
        if self.pattern and value not in self.refused and re.fullmatch(self.pattern, value) is None:
            return f"{self.name} does not match {self.pattern}"
        return None


class RecordSchema(NamedTuple):
    """The fields of the records of a kind."""

    name: str
    fields: tuple[FieldRule, ...]

    def problem(self, value: bytes | bytearray | None) -> str | None:
        """What is wrong with a record's value, as a sentence; None for nothing."""
        record = json_object(value)
        return record if isinstance(record, str) else self.problem_of(record)

    def problem_of(self, record: Mapping[str, Any]) -> str | None:
        """What is wrong with a record, as a sentence; None for nothing."""
        return next((found for field in self.fields if (found := field.problem(record)) is not None), None)

    def refusal(self, record: Mapping[str, Any]) -> str | None:
        """The first field with a refused value; None for none."""
        return next((field.name for field in self.fields if record.get(field.name) in field.refused), None)


def json_object(value: bytes | bytearray | None) -> dict[str, Any] | str:
    """The object, or a sentence about a value that is none. JSON is UTF-8 here, as for Spark: of
    bytes, Python would also take UTF-16.
    """
    try:
        record = json.loads(bytes(value or b"").decode())
    except (ValueError, RecursionError):
        return "the value is not JSON"
    return record if isinstance(record, dict) else "the value is not a JSON object"


class ContractTopic(NamedTuple):
    """A topic of a contract. `schema` "" takes any value; `also` is a regular expression for
    further topics of the kind, "" for none.
    """

    name: str
    about: str
    schema: str
    also: str
    partitions_min: int
    partitions_max: int
    configs: Mapping[str, str]

    def covers(self, topic: str) -> bool:
        """True if the topic is of this kind."""
        return topic == self.name or (bool(self.also) and re.fullmatch(self.also, topic) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataContract:
    """A contract: topics whose names begin with `prefix`, and schemas by name."""

    name: str
    prefix: str
    topics: tuple[ContractTopic, ...]
    schemas: Mapping[str, RecordSchema]

    def topic(self, name: str) -> ContractTopic | None:
        """The rules of a topic; None for one that the contract does not have."""
        return next((one for one in self.topics if one.covers(name)), None)


class FoundTopic(NamedTuple):
    """A topic of a cluster; `configs` are those in force."""

    partitions: int
    configs: Mapping[str, str]


class Severity(enum.StrEnum):
    """A warning is advice, an error contradicts the contract."""

    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    """What is wrong with a topic, as a sentence."""

    topic: str
    severity: Severity
    text: str


def topic_findings(contract: DataContract, found: Mapping[str, FoundTopic]) -> Iterator[Finding]:
    """What contradicts the contract in the topics of a cluster, without their records."""
    for wanted in contract.topics:
        if wanted.name not in found:
            yield Finding(wanted.name, Severity.ERROR, "the topic is not there")
    for name, topic in sorted(found.items()):
        rules = contract.topic(name)
        if rules is not None:
            yield from _findings(rules, name, topic)
        elif name.startswith(contract.prefix):
            yield Finding(name, Severity.ERROR, f"contract {contract.name} does not have this topic")


def _findings(rules: ContractTopic, name: str, topic: FoundTopic) -> Iterator[Finding]:
    if topic.partitions < rules.partitions_min:
        text = f"partitions: {topic.partitions}. Fewer than {rules.partitions_min} leave disks and consumers idle"
        yield Finding(name, Severity.WARNING, text)
    if topic.partitions > rules.partitions_max:
        text = f"partitions: {topic.partitions}. More than {rules.partitions_max} cost brokers and controller more than they gain"
        yield Finding(name, Severity.WARNING, text)
    for key, value in rules.configs.items():
        if topic.configs.get(key) != value:
            yield Finding(name, Severity.ERROR, f"{key} is {topic.configs.get(key)}, not {value}")


def record_findings(
    contract: DataContract, topic: str, records: Iterable[tuple[int, int, bytes | None]]
) -> Iterator[Finding]:
    """Records (partition, offset, value) of a topic that do not have its schema."""
    rules = contract.topic(topic)
    if rules is None or not rules.schema:
        return
    schema = contract.schemas[rules.schema]
    for partition, offset, value in records:
        problem = schema.problem(value)
        if problem is not None:
            yield Finding(topic, Severity.ERROR, f"partition {partition}, offset {offset}: {problem}")
