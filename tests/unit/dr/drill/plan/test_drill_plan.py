"""Plans and environments: valid files, and errors that name file, key and value."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dr.drill.environment import Environment, load_environment, parse_environment
from dr.drill.execution import DrillRun
from dr.drill.plan.drill_plan import load_plan, parse_plan
from dr.drill.plan.fault_verbs import Cut, Kill
from dr.drill.plan.site_verbs import Hold
from runtime.process import OperationalFailure

ROOT = Path(__file__).parents[5]


def plan(*steps: object, **fields: object) -> Any:
    return parse_plan({"name": "n", "link": "a-b", "steps": list(steps), **fields}, where="plan.yaml")


def test_the_example_plan_can_be_read() -> None:
    loaded = load_plan(ROOT / "deploy/examples/demo-drill.yaml")
    assert [step.verb for step in loaded.steps].count("reconcile") == 3
    assert loaded.expect.producer_recovery_ms_max == 15_000


def test_steps_are_read_by_their_verb_and_a_bare_verb_has_no_fields() -> None:
    steps = plan("cut", {"hold": {"duration": "1.5s"}}, {"kill": {"site": "a"}}).steps
    assert steps == (Cut(), Hold(duration="1500ms"), Kill(site="a"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("explode", r"steps\[0\]='explode' is not usable: accepted is one of create_topics, "),
        ({"cut": {}, "heal": {}}, r"steps\[0\]=.* is not usable"),
        ({"hold": {"duration": 5}}, r"steps\[0\].hold.duration=5 is not usable: accepted: a duration such as 500ms"),
        ({"hold": {"duration": f"{'9' * 400}s"}}, "accepted: a duration such as 500ms"),
        ({"hold": {}}, r"steps\[0\].hold.duration=\(not set\)"),
        ({"kill": {}}, r"steps\[0\].kill=.*accepted: either process or site"),
        (
            {"kill": {"site": "a", "pid": 7}},
            r"steps\[0\].kill.pid=7 is not usable: unknown key; accepted: process, site",
        ),
        ({"wait": {"acknowledged": 1, "delivered": 1}}, "accepted: one of lag_records_max, acknowledged"),
        ({"reconcile": {"quick": True, "expect": "as_accounted"}}, "accepted with quick: expect equal or anything"),
        ({"reconcile": {"name": "a/b"}}, r"steps\[0\].reconcile.name='a/b'"),
        ({"start_load": {"name": "a b"}}, r"steps\[0\].start_load.name='a b'"),
    ],
)
def test_a_wrong_step_is_refused_with_its_place(step: object, message: str) -> None:
    with pytest.raises(OperationalFailure, match=f"plan plan.yaml: .*{message}|plan plan.yaml: {message}"):
        plan(step)


def test_an_unknown_expectation_is_refused() -> None:
    with pytest.raises(OperationalFailure, match=r"expect\.rpo=1 is not usable: "):
        plan("cut", expect={"rpo": 1})


def test_a_file_that_is_missing_or_no_yaml_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(OperationalFailure, match="cannot be read"):
        load_plan(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(OperationalFailure, match="is not YAML"):
        load_plan(tmp_path / "bad.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"\xff")
    with pytest.raises(OperationalFailure, match="is not YAML"):
        load_plan(tmp_path / "bad.yaml")
    with pytest.raises(OperationalFailure, match="is not JSON"):
        load_environment(tmp_path / "bad.yaml")


def environment(**changes: Any) -> Any:
    process = {"name": "broker-1", "pid": 1, "dir": "d", "log": "l", "command": ["run"], "env": {}}
    site = {"bootstrap_servers": "h:1", "grpc": ["h:2"], "processes": [process]}
    other = {**site, "processes": [process, {**process, "name": "broker-2"}]}
    document = {"sites": {"a": site, "b": other}, "links": [{"name": "a-b", "source": "a", "target": "b"}], **changes}
    return parse_environment(json.dumps(document), where="env.json")


def test_only_processes_that_the_environment_names_can_be_aimed_at() -> None:
    found = environment()
    assert [process.name for process in found.processes(site="b")] == ["broker-1", "broker-2"]
    assert [process.name for process in found.processes(process="b/broker-1")] == ["broker-1"]
    with pytest.raises(OperationalFailure, match="broker-1 names 2 processes"):
        found.processes(process="broker-1")
    with pytest.raises(
        OperationalFailure, match="accepted: one of a/broker-1, b/broker-1, b/broker-2, or a site of a, b"
    ):
        found.processes(process="sshd")


def test_an_environment_with_a_missing_field_names_it() -> None:
    with pytest.raises(OperationalFailure, match=r"env.json: sites\.a\.grpc: Field required"):
        environment(sites={"a": {"bootstrap_servers": "h:1", "processes": []}})
    with pytest.raises(OperationalFailure, match="link 'x' is not in the environment; there: a-b"):
        environment().link("x")


def test_a_stop_condition_names_the_limit_that_is_passed(tmp_path: Path) -> None:
    document = {
        "name": "x",
        "link": "a-b",
        "steps": ["heal"],
        "stop_when": {"lag_records_above": 10, "no_acknowledgement_for": "5s"},
    }
    run = DrillRun(parse_plan(document, where="x"), Environment(sites={}), directory=tmp_path)

    def found(lag: int | None, silence_ms: float) -> str:
        stage: Any = SimpleNamespace(clients=SimpleNamespace(silence_ms=lambda _: silence_ms))
        sample: Any = SimpleNamespace(lag_records=lag)
        return run._stop_condition(stage, sample)

    assert found(10, 5_000) == ""
    assert found(None, 0) == ""
    assert found(11, 0) == "the standby is 11 records behind, more than 10"
    assert found(0, 5_001) == "nothing was acknowledged for 5001 ms"


def test_one_direction_of_a_line_is_cut_silently_or_not_at_all() -> None:
    with pytest.raises(OperationalFailure, match="is_silent: true"):
        parse_plan({"name": "x", "link": "a-b", "steps": [{"cut": {"direction": "towards"}}]}, where="x")
