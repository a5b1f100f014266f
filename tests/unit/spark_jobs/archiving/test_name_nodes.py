"""Addresses of HDFS before a client uses them. Promised: a wrong address, and a name node that does
not answer, are named within seconds with what is accepted.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy.stores.hadoop import write_configuration
from runtime.addresses import HostPort
from runtime.process import OperationalFailure
from spark_jobs.archiving.directories import directory_at
from spark_jobs.archiving.hdfs_directory import check_name_node, hadoop_settings
from spark_jobs.archiving.name_nodes import name_nodes
from tests.support.processes.ports import LOOPBACK, free_port

NAMESERVICE = {
    "fs.defaultFS": "hdfs://sites",
    "dfs.ha.namenodes.sites": "one, two",
    "dfs.namenode.rpc-address.sites.one": "n1:8020",
    "dfs.namenode.rpc-address.sites.two": "n2:8021",
}


@pytest.fixture(autouse=True)
def without_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("authority", ["sites", ""])
def test_a_nameservice_has_the_name_nodes_of_the_settings(authority: str) -> None:
    assert name_nodes(authority, NAMESERVICE) == [HostPort("n1", 8020), HostPort("n2", 8021)]


def test_a_host_with_a_port_is_its_own_name_node() -> None:
    assert name_nodes("n3:9000", NAMESERVICE) == [HostPort("n3", 9000)]
    assert name_nodes("", {"fs.defaultFS": "hdfs://n4:8020/"}) == [HostPort("n4", 8020)]


@pytest.mark.parametrize(
    ("authority", "reason"),
    [("n1", "'n1' has no port, and hdfs-site.xml"), ("", "it has no host, and core-site.xml"), ("n1:x", "valid port")],
)
def test_an_address_without_a_name_node_is_refused_with_what_is_accepted(authority: str, reason: str) -> None:
    with pytest.raises(
        OperationalFailure, match=f"the archive hdfs://{authority}/dir cannot be used: .*{reason}"
    ) as at:
        directory_at(f"hdfs://{authority}/dir")
    assert "accepted: h" in str(at.value)


def test_a_name_node_that_does_not_answer_is_named() -> None:
    port = free_port()
    with pytest.raises(OperationalFailure, match=f"no name node answers .*{LOOPBACK}:{port}: .*rpc-address"):
        directory_at(f"hdfs://{LOOPBACK}:{port}/dir")


def test_one_of_several_name_nodes_is_enough() -> None:
    with socket.create_server((LOOPBACK, 0)) as listening:
        check_name_node([HostPort(LOOPBACK, free_port()), HostPort(LOOPBACK, listening.getsockname()[1])])


def test_settings_are_read_from_the_directory_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_configuration(tmp_path / "core-site.xml", {"fs.defaultFS": "hdfs://sites"})
    write_configuration(tmp_path / "hdfs-site.xml", {"dfs.ha.namenodes.sites": "one, two"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert hadoop_settings() == {"fs.defaultFS": "hdfs://sites", "dfs.ha.namenodes.sites": "one, two"}
    (tmp_path / "hdfs-site.xml").write_text("<configuration>")
    with pytest.raises(OperationalFailure, match=r"hdfs-site\.xml cannot be read"):
        directory_at("hdfs://sites/dir")
