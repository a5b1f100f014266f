"""Links as `antipode links` prints them: rows of tables, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cli.shared.failures import print_error
from cli.shared.output import OutputFormat, console, error_console, print_json, print_table
from wire.rules.links import (
    SyncPolicy,
    blacklist_of,
    other_site,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from dr.links.administration import CheckedLink, LinkAtSite
    from wire.control.cluster_pb2 import LinkRecord
    from wire.control.site_pb2 import LinkStatus


def phase_name(record: LinkRecord) -> str:
    """The phase in lower case."""
    from wire.control.cluster_pb2 import LinkPhase

    return LinkPhase.Name(record.phase).lower()


def record_document(record: LinkRecord) -> dict[str, Any]:
    """The JSON form of a link's record."""
    return {**fields_of(record), "phase": phase_name(record)}


def checks_document(checked: CheckedLink) -> dict[str, Any]:
    """The JSON form of the record that the checks are about, and of the checks."""
    columns = ("check", "outcome", "detail")
    return {
        **record_document(checked.record),
        "checks": [dict(zip(columns, row, strict=True)) for row in _check_rows(checked)],
    }


def print_checks(checked: CheckedLink, *, is_dry_run: bool) -> None:
    """Print every check of a dry run; else only the warnings."""
    from dr.links.core.link_preflight import Outcome

    if is_dry_run:
        print_table("", ("check", "outcome", "detail"), _check_rows(checked))
        return
    for one in checked.checks:
        if one.outcome is Outcome.WARNING:
            error_console.print(f"{one.check}: {one.detail}", soft_wrap=True, markup=False)


def _check_rows(checked: CheckedLink) -> list[tuple[str, str, str]]:
    return [(one.check, one.outcome.value, one.detail) for one in checked.checks]


def fields_of(message: Message) -> dict[str, Any]:
    """Every field as plain data; numbers stay numbers (protobuf's own JSON writes long ones as
    texts).
    """
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.json_format import MessageToDict

    longs = {field.name for field in message.DESCRIPTOR.fields if field.cpp_type == FieldDescriptor.CPPTYPE_INT64}
    found = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {name: int(value) if name in longs else value for name, value in found.items()}


def _sync(record: LinkRecord) -> str:
    """The policy in one to three words; empty if no producer waits."""
    from dr.sites.core.sync_policies import is_suspended

    suspension = f" ({record.sync_policy_to_restore} suspended)" if is_suspended(record) else ""
    bound = f" {record.sync_bound_ms} ms" if record.sync_policy == SyncPolicy.BOUND.value else ""
    return f"{record.sync_policy}{bound}{suspension}"


def status_document(entry: LinkAtSite) -> dict[str, Any]:
    """The JSON form of a link as one site sees it."""
    if entry.status is None:
        return {"site": entry.site, "problem": entry.problem}
    return {
        "site": entry.site,
        "link": record_document(entry.status.record),
        "is_confirmed": entry.status.is_confirmed,
        "is_peer_reachable": entry.status.is_peer_reachable,
        "is_unknown_to_peer": entry.status.is_unknown_to_peer,
        "contested_by": entry.status.contested_by or None,
        "lease": fields_of(entry.status.lease) if entry.status.HasField("lease") else None,
        "mirror_report_age_ms": entry.mirror_report_age_ms,
        "mirror_problems": list(entry.mirror_problems),
    }


def status_row(entry: LinkAtSite) -> Sequence[object]:
    """A row of `antipode links list`."""
    from dr.sites.core.mirror_reports import mirror_sentence

    if entry.status is None:
        return ("?", entry.site, "", "", "", "", "", entry.problem, "", "", "")
    record, contested_by = entry.status.record, entry.status.contested_by
    return (
        record.name,
        entry.site,
        record.active_site,
        record.epoch,
        phase_name(record),
        _sync(record),
        f"no: {contested_by} is active, says the peer"
        if contested_by
        else "yes"
        if entry.status.is_confirmed
        else "no",
        _peer(entry.site, entry.status),
        "; ".join((mirror_sentence(entry.mirror_report_age_ms), *entry.mirror_problems)),
        ",".join(record.topic_whitelist),
        ",".join(blacklist_of(record)),
    )


def _peer(site: str, status: LinkStatus) -> str:
    """What the site knows of the other end of the link."""
    from dr.sites.core.link_checks import lost_link_problem

    if status.is_unknown_to_peer:
        return lost_link_problem(status.record.name, site=other_site(status.record, site))
    return "answers" if status.is_peer_reachable else "silent"


def description_document(entry: LinkAtSite) -> dict[str, Any]:
    """The JSON form of a link's record and logs at one site."""
    if entry.description is None:
        return {"site": entry.site, "problem": entry.problem}
    return {
        "site": entry.site,
        "link": record_document(entry.description.record),
        "partitions": [fields_of(item) for item in entry.description.partitions],
        "cuts": [fields_of(item) for item in entry.description.cuts],
    }


def print_description(entry: LinkAtSite) -> None:
    """Print a link's record and logs at one site as a table."""
    from dr.sites.core.sync_policies import policy_sentence

    if entry.description is None:
        print_error(entry.problem)
        return
    record = entry.description.record
    rows = [
        (item.topic, item.partition, item.log_start_offset, item.log_end_offset, "degraded" if item.is_degraded else "")
        for item in entry.description.partitions
    ]
    title = f"site {entry.site}: {record.active_site} is active in epoch {record.epoch}, {phase_name(record)}"
    if summary := policy_sentence(record):
        title += f"; {summary}"
    print_table(title, ("topic", "partition", "start offset", "end offset", "sync"), rows)
    if entry.description.cuts:
        cuts = [
            (item.topic, item.partition, item.node_id, item.cuts, item.records, item.bytes, item.kept_bytes)
            for item in entry.description.cuts
        ]
        columns = ("topic", "partition", "broker", "cuts", "records", "bytes", "kept bytes")
        print_table(f"site {entry.site}: truncated from logs since their brokers started", columns, cuts)


def print_record(record: LinkRecord, sentence: str, output: OutputFormat) -> None:
    """Print the record as JSON, or the sentence."""
    if output is OutputFormat.JSON:
        print_json(record_document(record))
    else:
        console.print(sentence, markup=False)
