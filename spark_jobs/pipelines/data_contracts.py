"""Reads data contracts: YAML files that declare the topics of a pipeline and the schemas of their
records.

`contracts/*.yaml` beside this module are those of the project's own pipelines. An error names the
file, the key, the value and what is accepted.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from runtime.process import OperationalFailure
from spark_jobs.pipelines.core.contracts import ContractTopic, DataContract, FieldRule, RecordSchema, is_of_type

PARTITIONS_MAX: Final = 1_000_000


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"accepted: a regular expression ({error})") from error
    return value


_Expression = Annotated[str, AfterValidator(_expression)]


class _Field(_Part):
    type: Literal["string", "integer", "number", "boolean"]
    pattern: _Expression = ""
    is_optional: bool = False
    refused: tuple[Any, ...] = ()

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.pattern and self.type != "string":
            raise ValueError("accepted: a pattern with type string")
        for value in self.refused:
            # An unquoted no is False in YAML.
            if not is_of_type(value, self.type):
                raise ValueError(f"accepted: refused values of type {self.type}, not {value!r}")
        return self


class _Partitions(_Part):
    least: int = Field(default=1, ge=1)
    most: int = Field(default=PARTITIONS_MAX, ge=1)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"accepted: least up to most, not {self.least} to {self.most}")
        return self


class _Topic(_Part):
    about: str = ""
    also: _Expression = ""
    # "schema" is a method of pydantic's own.
    schema_name: str = Field(default="", alias="schema")
    partitions: _Partitions = _Partitions()
    configs: dict[str, str] = {}


class _Contract(_Part):
    name: str = Field(min_length=1)
    prefix: str = Field(min_length=1)
    topics: dict[str, _Topic] = Field(min_length=1)
    schemas: dict[str, dict[str, _Field]] = {}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for name, topic in self.topics.items():
            if not name.startswith(self.prefix):
                raise ValueError(f"topic {name}: accepted are names that begin with {self.prefix}")
            if topic.schema_name and topic.schema_name not in self.schemas:
                accepted = ", ".join(self.schemas) or "none"
                raise ValueError(f"topic {name} has schema {topic.schema_name!r}: accepted are {accepted}")
        return self


def own_contract(name: str) -> DataContract:
    """The contract of a pipeline of the project."""
    file = files("spark_jobs.pipelines") / "contracts" / f"{name}.yaml"
    return parse_contract(file.read_text(encoding="utf-8"), where=f"{name}.yaml")


def load_contract(file: Path) -> DataContract:
    """The contract in a file. OperationalFailure."""
    try:
        return parse_contract(file.read_text(encoding="utf-8"), where=str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalFailure(f"contract {file} cannot be read: {error}") from error


def parse_contract(text: str, *, where: str) -> DataContract:
    """A contract of YAML. OperationalFailure."""
    try:
        parsed = _Contract.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise OperationalFailure(f"contract {where} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the whole file"
        value = "(not set)" if first["type"] == "missing" else repr(first["input"])[:200]
        accepted = first["msg"].removeprefix("Value error, ")
        raise OperationalFailure(f"contract {where}: {key}={value} is not usable: {accepted}") from error
    return DataContract(
        name=parsed.name,
        prefix=parsed.prefix,
        topics=tuple(
            ContractTopic(
                name=name,
                about=topic.about,
                schema=topic.schema_name,
                also=topic.also,
                partitions_min=topic.partitions.least,
                partitions_max=topic.partitions.most,
                configs=topic.configs,
            )
            for name, topic in parsed.topics.items()
        ),
        schemas={
            name: RecordSchema(
                name,
                tuple(
                    FieldRule(
                        field,
                        rule.type,
                        pattern=rule.pattern,
                        is_optional=rule.is_optional,
                        refused=rule.refused,
                    )
                    for field, rule in fields.items()
                ),
            )
            for name, fields in parsed.schemas.items()
        },
    )
