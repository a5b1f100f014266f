"""A drill as JUnit XML, for build servers: a test case for each step and for each expectation.

Format: the schema that Jenkins and GitLab read (testsuite, testcase, failure, skipped).
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

from dr.drill.drill_results import DrillResult

DONE, SKIPPED = "done", "skipped"
NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may contain: the end of a program's log may have control characters."""


def junit_xml(result: DrillResult) -> str:
    """The document."""
    cases = [*_steps(result), *_expectations(result), *_restored(result)]
    failures = sum(case.find("failure") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    suite = ET.Element(
        "testsuite",
        name=result.name,
        tests=str(len(cases)),
        failures=str(failures),
        errors="0",
        skipped=str(skipped),
        time=_seconds(result.ended_at_ms - result.started_at_ms),
    )
    suite.extend(cases)
    for element in suite.iter():
        element.attrib = {key: NOT_XML.sub("?", value) for key, value in element.attrib.items()}
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _steps(result: DrillResult) -> list[ET.Element]:
    cases = []
    for number, step in enumerate(result.steps, start=1):
        case = _case("steps", f"{number:02} {step.title}", _seconds(step.duration_ms))
        if step.outcome == SKIPPED:
            ET.SubElement(case, "skipped")
        elif step.outcome != DONE:
            ET.SubElement(case, "failure", message=step.detail or step.outcome)
        cases.append(case)
    return cases


def _expectations(result: DrillResult) -> list[ET.Element]:
    cases = []
    for verdict in result.verdicts:
        case = _case("expectations", verdict.name, "0")
        if not verdict.is_met:
            ET.SubElement(case, "failure", message=f"wanted {verdict.wanted}, found {verdict.found}")
        cases.append(case)
    return cases


def _restored(result: DrillResult) -> list[ET.Element]:
    case = _case("end", "everything is put right", "0")
    if result.restore_problems:
        ET.SubElement(case, "failure", message="; ".join(result.restore_problems))
    return [case]


def _case(group: str, name: str, time: str) -> ET.Element:
    return ET.Element("testcase", classname=group, name=name, time=time)


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.3f}"
