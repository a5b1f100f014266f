"""The report of a controller that runs alone about its file."""

from __future__ import annotations

from structlog.testing import capture_logs

from cli.processes.controller_file import load_controller_file

GIVEN = {"node.id": "3", "zookeeper.connect": "z:1", "antipode.site.name": "a"}


def said_of(**given: str) -> dict[str, str | None]:
    """Reported keys (underscores for dots), and the key that each may mean."""
    with capture_logs() as said:
        load_controller_file({**GIVEN, **{key.replace("_", "."): value for key, value in given.items()}})
    return {entry["key"]: entry.get("meant") for entry in said}


def test_an_unknown_key_is_reported_with_the_likely_one() -> None:
    assert said_of(leader_imbalance_check_intervall_seconds="5", no_such_thing_at_all="1") == {
        "leader.imbalance.check.intervall.seconds": "leader.imbalance.check.interval.seconds",
        "no.such.thing.at.all": None,
    }


def test_a_broker_s_keys_pass_in_silence_and_so_do_kafkas_that_mean_nothing_here() -> None:
    assert said_of(log_dirs="/x", num_io_threads="8", controller_socket_timeout_ms="5000") == {}


def test_a_site_number_has_a_default_and_the_bounds_that_a_broker_has() -> None:
    assert load_controller_file(GIVEN).site_number == 0
    assert load_controller_file({**GIVEN, "antipode.site.number": "1023"}).site_number == 1023
