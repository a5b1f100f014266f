"""Values that contradict each other or that no command accepts: the message names the option, the
value and what is accepted, before anything is asked.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.shared import sites
from tests.support.embedded.commands import app

UNUSED = {"ANTIPODE_BOOTSTRAP_SERVER": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "topics create t --config retention.ms=1 --config retention.ms=2",
            "--config 'retention.ms=2' is not usable: retention.ms is given already",
        ),
        (
            "configs alter --topic t --set retention.ms=1 --unset retention.ms",
            "--unset 'retention.ms' contradicts --set retention.ms=1: give one of the two",
        ),
        ("quotas set bytes --user u", "quota 'bytes' is not usable: accepted is key=value"),
        (
            "quotas set bytes=1 --user u",
            "quota 'bytes' is not usable for user u: accepted are producer_byte_rate, consumer_byte_rate",
        ),
        (
            "quotas remove producer_byte_rate --ip 10.0.0.1",
            "quota 'producer_byte_rate' is not usable for ip 10.0.0.1: accepted are connection_creation_rate",
        ),
        (
            "acls add --allow-principal User:u --operation read --cluster",
            "--operation Read is not usable for Cluster: accepted are",
        ),
        (
            "consume t --from latest --from-beginning",
            "--from 'latest' contradicts --from-beginning: give one of the two",
        ),
        ("consume t --strategy roundrobin", "--strategy roundrobin goes with --zookeeper"),
        ("consume t --no-dual-commit", "--no-dual-commit goes with --zookeeper"),
        (
            "consume t --group g --zookeeper z:1 --strategy fair",
            "--strategy 'fair' is not usable: accepted are range, roundrobin",
        ),
        (
            "consume t --group g --zookeeper z:1 --offsets-storage disk",
            "--offsets-storage 'disk' is not usable: accepted are zookeeper, kafka",
        ),
        (
            "switchover a-b --to b --site b=x:1 --at yesterday --dry-run",
            "--at 'yesterday' is no time: accepted are",
        ),
        (
            "switchover a-b --to b --site b=x:1 --at 2020-01-01 --dry-run",
            "--at '2020-01-01' is in the past: accepted is a time to come",
        ),
        ("up --failover automatic", "--failover automatic have no effect: add --arbiter"),
        (
            "credentials certificate --dir none --role broker --name a --file f --host a1.example.org:9092",
            "--host 'a1.example.org:9092' is not usable: accepted is a DNS name or an IP address, without a port",
        ),
        (
            "drill run deploy/examples/demo-drill.yaml --link b-a --dry-run",
            "--link b-a goes with a ready plan: deploy/examples/demo-drill.yaml names its link itself",
        ),
        ("reconcile --source x:1 --target y:1 --whitelist a(", "--whitelist: pattern 'a(' is not a regular expression"),
        ("reconcile --source x:1 --target y:1 --blacklist a(", "--blacklist: pattern 'a(' is not a regular expression"),
        ("links list", "`antipode up` keeps environment.json in its --dir"),
    ],
)
def test_the_message_names_option_value_and_what_is_accepted(
    line: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTIPODE_ENVIRONMENT", raising=False)
    monkeypatch.setattr(sites, "DEFAULT_ENVIRONMENT", Path("none/environment.json"))
    ended = CliRunner().invoke(app, line.split(), env=UNUSED)
    assert ended.exit_code == 2, (ended.output, ended.exception)
    assert message in ended.output
