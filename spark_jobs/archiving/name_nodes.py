"""The name nodes that an address of HDFS means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from runtime.addresses import HostPort, parse_host_port

ACCEPTED: Final = "accepted: hdfs://host:port/dir, hdfs://nameservice/dir, and hdfs:///dir where fs.defaultFS is set"


def name_nodes(authority: str, settings: Mapping[str, str]) -> list[HostPort]:
    """The addresses of the name nodes: of `authority` (host:port, a nameservice, or empty for the
    default file system) by the settings of core-site.xml and hdfs-site.xml. ValueError says what is
    accepted.
    """
    default = urlsplit(settings.get("fs.defaultFS", ""))
    place = authority or (default.netloc if default.scheme == "hdfs" else "")
    if not place:
        raise ValueError(f"it has no host, and core-site.xml in HADOOP_CONF_DIR has no fs.defaultFS; {ACCEPTED}")
    names = [name.strip() for name in settings.get(f"dfs.ha.namenodes.{place}", "").split(",") if name.strip()]
    keys = [f"dfs.namenode.rpc-address.{place}.{name}" for name in names] or [f"dfs.namenode.rpc-address.{place}"]
    found = [parse_host_port(settings[key]) for key in keys if key in settings]
    if not found and ":" not in place:
        raise ValueError(
            f"{place!r} has no port, and hdfs-site.xml in HADOOP_CONF_DIR has no nameservice of this name; {ACCEPTED}"
        )
    return found or [parse_host_port(place)]
