"""The figures of each section with their targets, and the rows of a run. Pure: samples in, rows
with ratios and verdicts out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.measuring.figures import Figure, Pick, Row, Sample, Side, Target, picked
from bench.measuring.phases import TITLES

_OF_A_DRAIN = {
    "mb_per_s": Figure(title="drain", unit="MB/s", pick=Pick.HIGHEST, target=Target(ratio_min=5)),
    "produced_mb_per_s": Figure(title="librdkafka writing it to the source", unit="MB/s", pick=Pick.HIGHEST),
    "target_cores": Figure(title="target broker's CPU meanwhile", unit="cores", pick=Pick.HIGHEST),
    "brokers_mb_per_s": Figure(title="the brokers with no mirror between", unit="MB/s", pick=Pick.HIGHEST),
    "brokers_share": Figure(title="drain's share of that", unit="of 1", pick=Pick.MEDIAN),
    "cpu_s_per_gb": Figure(title="mirror CPU", unit="s/GB", pick=Pick.LOWEST, target=Target(ratio_max=0.067)),
    "relay_cpu_s_per_gb": Figure(title="CPU of receiving and sending the bytes alone", unit="s/GB", pick=Pick.LOWEST),
    "peak_mb": Figure(title="mirror memory, peak", unit="MB", pick=Pick.HIGHEST, target=Target(below=150)),
}
_OF_A_LAG = {
    "lag_p50_ms": Figure(title="lag p50", unit="ms", pick=Pick.LOWEST),
    "lag_p99_ms": Figure(title="lag p99", unit="ms", pick=Pick.LOWEST, target=Target(below=10)),
    "lag_p999_ms": Figure(title="lag p99.9", unit="ms", pick=Pick.LOWEST),
    "cores": Figure(title="mirror CPU", unit="cores", pick=Pick.LOWEST),
}
_ECHO = {
    "echo_p99_ms": Figure(title="loopback echo beside it, p99", unit="ms", pick=Pick.LOWEST),
    "echo_p999_ms": Figure(title="loopback echo beside it, p99.9", unit="ms", pick=Pick.LOWEST),
}
_PRODUCE_CPU = Figure(
    title="broker CPU",
    unit="s/GB",
    pick=Pick.LOWEST,
    target=Target(ratio_max=0.65),
    case_targets={"10 KB": Target(ratio_max=0.75)},
)
_OF_A_LINE = {
    "mb_per_s": Figure(title="mirrored", unit="MB/s", pick=Pick.HIGHEST),
    "line_mb_per_s": Figure(title="what the line carries", unit="MB/s", pick=Pick.HIGHEST),
    "line_share": Figure(title="share of the line", unit="of 1", pick=Pick.MEDIAN, target=Target(least=0.8)),
}

FIGURES: Mapping[str, Mapping[str, Figure]] = {
    "produce": {
        "mb_per_s": Figure(title="throughput", unit="MB/s", pick=Pick.HIGHEST, target=Target(ratio_min=1)),
        "cpu_s_per_gb": _PRODUCE_CPU,
    },
    "consume": {
        "mb_per_s": Figure(title="throughput", unit="MB/s", pick=Pick.HIGHEST, target=Target(ratio_min=1)),
        "cpu_s_per_gb": Figure(title="broker CPU", unit="s/GB", pick=Pick.LOWEST, target=Target(ratio_max=0.8)),
    },
    "requests": {
        "per_s": Figure(title="rate", unit="requests/s", pick=Pick.HIGHEST, target=Target(ratio_min=1.2)),
        "p50_ms": Figure(title="latency p50", unit="ms", pick=Pick.LOWEST),
        "p99_ms": Figure(title="latency p99", unit="ms", pick=Pick.LOWEST),
    },
    "bridge": {
        "records_per_s": Figure(title="rate", unit="records/s", pick=Pick.HIGHEST),
        "mb_per_s": Figure(title="throughput", unit="MB/s", pick=Pick.HIGHEST),
        "p50_ms": Figure(title="latency p50", unit="ms", pick=Pick.LOWEST),
        "p99_ms": Figure(title="latency p99", unit="ms", pick=Pick.LOWEST),
        "cpu_us_per_record": Figure(title="bridge CPU", unit="µs/record", pick=Pick.LOWEST),
    },
    "groups": {
        "all_read_s": Figure(title="join to first record, last member", unit="s", pick=Pick.LOWEST),
        "p50_s": Figure(title="join to first record, p50", unit="s", pick=Pick.LOWEST),
        "commits_per_s": Figure(title="rate", unit="commits/s", pick=Pick.HIGHEST),
        "cpu_us_per_commit": Figure(title="broker CPU", unit="µs/commit", pick=Pick.LOWEST),
    },
    "transactions": {
        "per_s": Figure(
            title="rate",
            unit="transactions/s",
            pick=Pick.HIGHEST,
            case_targets={"8 producers": Target(ratio_min=1.2)},
        ),
        "p50_ms": Figure(title="latency p50", unit="ms", pick=Pick.LOWEST),
        "p99_ms": Figure(title="latency p99", unit="ms", pick=Pick.LOWEST),
        "mb_per_s": Figure(title="throughput", unit="MB/s", pick=Pick.HIGHEST),
        "cpu_s_per_gb": Figure(title="broker CPU", unit="s/GB", pick=Pick.LOWEST),
    },
    "start-up": {
        "ready_s": Figure(title="start to first answer", unit="s", pick=Pick.MEDIAN, target=Target(below=0.6)),
    },
    "memory": {
        "resident_mb": Figure(title="resident memory", unit="MB", pick=Pick.MEDIAN, target=Target(below=100)),
        "peak_mb": Figure(title="resident memory, peak", unit="MB", pick=Pick.MEDIAN),
    },
    "unavailability": {
        "p50_ms": Figure(title="silence p50", unit="ms", pick=Pick.LOWEST),
        "p99_ms": Figure(title="silence p99", unit="ms", pick=Pick.LOWEST),
        "longest_ms": Figure(title="silence, longest", unit="ms", pick=Pick.LOWEST),
    },
    "recovery-time": {
        "slowest_p50_ms": Figure(title="slowest record, p50", unit="ms", pick=Pick.LOWEST),
        "slowest_p99_ms": Figure(
            title="slowest record, p99",
            unit="ms",
            pick=Pick.LOWEST,
            case_targets={"100 partitions, planned": Target(below=200), "10000 partitions, planned": Target(below=500)},
        ),
        "stopped_p50_ms": Figure(title="fence to account, p50", unit="ms", pick=Pick.LOWEST),
        **{name: Figure(title=title, unit="ms", pick=Pick.LOWEST) for name, title in TITLES.items()},
        "detection_ms": Figure(title="detection and lease", unit="ms", pick=Pick.LOWEST),
        "promotion_ms": Figure(
            title="promotion",
            unit="ms",
            pick=Pick.LOWEST,
            case_targets={"100 partitions, site": Target(below=300), "10000 partitions, site": Target(below=2_000)},
        ),
        "client_ms": Figure(title="until the client is back", unit="ms", pick=Pick.LOWEST),
        "whole_ms": Figure(title="kill -9 to the next acknowledgement", unit="ms", pick=Pick.LOWEST),
        "runbook_stop_ms": Figure(title="runbook: producers stopped", unit="ms", pick=Pick.LOWEST),
        "runbook_lag_ms": Figure(title="runbook: no record missing", unit="ms", pick=Pick.LOWEST),
        "runbook_mirror_ms": Figure(title="runbook: MirrorMaker 2 stopped", unit="ms", pick=Pick.LOWEST),
        "runbook_offsets_ms": Figure(title="runbook: group's offsets set", unit="ms", pick=Pick.LOWEST),
        "runbook_clients_ms": Figure(title="runbook: clients at the target", unit="ms", pick=Pick.LOWEST),
        "idle_cores": Figure(
            title="idle, the busiest process", unit="cores", pick=Pick.LOWEST, target=Target(below=0.05)
        ),
    },
    "mirror": {
        **_OF_A_DRAIN,
        "first_record_s": Figure(title="start to first record", unit="s", pick=Pick.LOWEST, target=Target(below=1)),
    },
    "mirror-latency": {
        **_OF_A_LAG,
        "slow_turn_ms": Figure(title="slowest 1 %: wait for the mirror's turn to fetch", unit="ms", pick=Pick.LOWEST),
        "slow_fetch_ms": Figure(title="slowest 1 %: fetch from the source", unit="ms", pick=Pick.LOWEST),
        "slow_mirror_ms": Figure(title="slowest 1 %: in the mirror", unit="ms", pick=Pick.LOWEST),
        "slow_target_ms": Figure(title="slowest 1 %: append and read at the target", unit="ms", pick=Pick.LOWEST),
        **_ECHO,
    },
    "mirror-drains": _OF_A_DRAIN,
    "translate": {
        "mb_per_s": _OF_A_DRAIN["mb_per_s"],
        "target_cores": _OF_A_DRAIN["target_cores"],
        "cpu_s_per_gb": replace(_OF_A_DRAIN["cpu_s_per_gb"], target=Target(ratio_max=0.04)),
        "cpu_s_per_gb_with_start": Figure(title="mirror CPU, start included", unit="s/GB", pick=Pick.LOWEST),
        "first_record_s": Figure(title="start to first record", unit="s", pick=Pick.LOWEST),
        "whole_s": Figure(title="start to last record", unit="s", pick=Pick.LOWEST),
        "peak_mb": _OF_A_DRAIN["peak_mb"],
        **{name: replace(figure, target=Target()) for name, figure in _OF_A_LAG.items()},
        **_ECHO,
    },
    "compiled": {
        "mb_per_s": Figure(title="throughput", unit="MB/s", pick=Pick.HIGHEST, target=Target(ratio_min=1)),
        "interpreted_mb_per_s": Figure(title="throughput, interpreted", unit="MB/s", pick=Pick.HIGHEST),
        "cpu_s_per_gb": replace(
            _PRODUCE_CPU, case_targets={"consume": Target(ratio_max=0.8), **_PRODUCE_CPU.case_targets}
        ),
        "interpreted_cpu_s_per_gb": Figure(title="broker CPU, interpreted", unit="s/GB", pick=Pick.LOWEST),
        "per_s": Figure(title="rate", unit="requests/s", pick=Pick.HIGHEST, target=Target(ratio_min=1.2)),
        "interpreted_per_s": Figure(title="rate, interpreted", unit="requests/s", pick=Pick.HIGHEST),
        "p50_ms": Figure(title="latency p50", unit="ms", pick=Pick.LOWEST),
        "interpreted_p50_ms": Figure(title="latency p50, interpreted", unit="ms", pick=Pick.LOWEST),
        "p99_ms": Figure(title="latency p99", unit="ms", pick=Pick.LOWEST),
        "interpreted_p99_ms": Figure(title="latency p99, interpreted", unit="ms", pick=Pick.LOWEST),
    },
    "mirror-transactions": {
        name: replace(_OF_A_DRAIN[name], target=Target())
        for name in ("mb_per_s", "target_cores", "cpu_s_per_gb", "peak_mb")
    },
    "mirror-topics": {
        "all_mirrored_s": Figure(title="start to all mirrored", unit="s", pick=Pick.LOWEST, target=Target(below=20)),
        "cpu_s": Figure(title="mirror CPU", unit="s", pick=Pick.LOWEST),
    },
    "mirror-far": _OF_A_LINE,
    "mirror-groups": {
        "p50_ms": Figure(title="commit at the target, p50", unit="ms", pick=Pick.LOWEST),
        "p99_ms": Figure(title="commit at the target, p99", unit="ms", pick=Pick.LOWEST, target=Target(below=50)),
        "longest_ms": Figure(title="commit at the target, longest", unit="ms", pick=Pick.LOWEST),
    },
    "mirror-lossy": _OF_A_LINE,
    "replicated": {
        "mb_per_s": Figure(title="throughput", unit="MB/s", pick=Pick.HIGHEST, target=Target(ratio_min=1)),
        "cpu_s_per_gb": Figure(title="CPU of all brokers", unit="s/GB", pick=Pick.LOWEST, target=Target(ratio_max=1)),
        "p50_ms": Figure(title="latency p50", unit="ms", pick=Pick.LOWEST, target=Target(ratio_max=1)),
        "p99_ms": Figure(title="latency p99", unit="ms", pick=Pick.LOWEST, target=Target(ratio_max=1)),
        "p999_ms": Figure(title="latency p99.9", unit="ms", pick=Pick.LOWEST),
    },
    "partitions": {
        "gap_ms": Figure(title="longest gap of a producer", unit="ms", pick=Pick.MEDIAN, target=Target(below=100)),
        "answered_s": Figure(title="creation answered", unit="s", pick=Pick.MEDIAN),
        "led_s": Figure(title="created and led", unit="s", pick=Pick.MEDIAN, target=Target(below=1)),
        "produced_s": Figure(title="a record in each", unit="s", pick=Pick.MEDIAN),
        "led_again_s": Figure(title="led again after kill -9", unit="s", pick=Pick.MEDIAN, target=Target(below=10)),
        "back_after_kill_s": Figure(title="start after kill -9 to in sync", unit="s", pick=Pick.MEDIAN),
        "stop_s": Figure(title="orderly stop", unit="s", pick=Pick.MEDIAN),
        "back_after_stop_s": Figure(
            title="start after stop to in sync", unit="s", pick=Pick.MEDIAN, target=Target(below=10)
        ),
        "resident_mb": Figure(title="resident memory of a broker", unit="MB", pick=Pick.MEDIAN),
        "descriptors": Figure(title="open descriptors of a broker", unit="files", pick=Pick.MEDIAN),
    },
    "compaction": {
        "mb_per_s": Figure(title="compaction", unit="MB/s", pick=Pick.HIGHEST, target=Target(ratio_min=1.5)),
        "p50_ms": Figure(title="produce latency p50", unit="ms", pick=Pick.LOWEST),
        "p99_ms": Figure(title="produce latency p99", unit="ms", pick=Pick.LOWEST, target=Target(ratio_max=1)),
        "p999_ms": Figure(title="produce latency p99.9", unit="ms", pick=Pick.LOWEST),
    },
    "recovery": {
        "s_per_gb": Figure(title="recovery", unit="s/GB", pick=Pick.LOWEST, target=Target(ratio_max=1)),
        "cpu_s_per_gb": Figure(title="recovery CPU", unit="s/GB", pick=Pick.LOWEST),
        "after_kill_s": Figure(title="start after kill -9", unit="s", pick=Pick.LOWEST),
        "after_stop_s": Figure(title="start after stop", unit="s", pick=Pick.LOWEST),
    },
    "tls": {
        "mb_per_s": Figure(
            title="throughput",
            unit="MB/s",
            pick=Pick.HIGHEST,
            case_targets={"TLS": Target(ratio_min=1)},
        ),
        "cpu_s_per_gb": Figure(title="broker CPU", unit="s/GB", pick=Pick.LOWEST),
        "plaintext_cpu_ratio": Figure(
            title="broker CPU, of our plaintext's", unit="times", pick=Pick.LOWEST, target=Target(most=2)
        ),
        "idle_mb": Figure(title="memory that they add", unit="MB", pick=Pick.LOWEST, target=Target(below=150)),
        "kb_per_connection": Figure(title="memory of one", unit="KB", pick=Pick.LOWEST),
        "handshakes_per_s": Figure(title="handshakes, one after the other", unit="1/s", pick=Pick.HIGHEST),
        "drain_mb_per_s": Figure(title="drain", unit="MB/s", pick=Pick.HIGHEST, target=Target(ratio_min=4)),
        "mirror_cpu_s_per_gb": Figure(title="mirror CPU", unit="s/GB", pick=Pick.LOWEST),
    },
    "storm": {
        "alone_p99_ms": Figure(title="latency p99 without the storm", unit="ms", pick=Pick.LOWEST),
        "elsewhere_p99_ms": Figure(
            title="latency p99 while the storm hits another broker", unit="ms", pick=Pick.LOWEST
        ),
        "storm_p99_ms": Figure(title="latency p99 in the storm", unit="ms", pick=Pick.LOWEST),
        "storm_p99_ratio": Figure(
            title="latency p99, of that without the storm", unit="times", pick=Pick.MEDIAN, target=Target(most=2)
        ),
        "attempts_per_s": Figure(title="wrong logins", unit="1/s", pick=Pick.HIGHEST),
    },
    "reconcile": {
        "alone_p99_ms": Figure(title="produce latency p99 without it", unit="ms", pick=Pick.LOWEST),
        "beside_p99_ms": Figure(title="produce latency p99 beside it", unit="ms", pick=Pick.LOWEST),
        "p99_ratio": Figure(
            title="latency p99, of that without it", unit="times", pick=Pick.MEDIAN, target=Target(below=1.1)
        ),
        "comparisons_per_s": Figure(title="comparisons of both sites", unit="1/s", pick=Pick.HIGHEST),
    },
    "spark": {
        "per_s": Figure(
            title="rate",
            unit="records/s",
            pick=Pick.HIGHEST,
            case_targets={"count": Target(ratio_min=20), "read": Target(ratio_min=3)},
        ),
        "trigger_ms": Figure(title="batch of a stream, median", unit="ms", pick=Pick.LOWEST),
        "digests_s": Figure(title="digests of everything", unit="s", pick=Pick.LOWEST),
        "digest_bytes": Figure(title="digests of everything", unit="bytes", pick=Pick.LOWEST),
    },
}
SECTIONS = tuple(FIGURES)


def rows(samples: Sequence[Sample]) -> list[Row]:
    """The report's lines, in the order in which cases were first measured."""
    cases = dict.fromkeys((sample.section, sample.case) for sample in samples)
    found = []
    for section, case in cases:
        of_case = [sample for sample in samples if (sample.section, sample.case) == (section, case)]
        for name, figure in FIGURES[section].items():
            by_side = {side: [s.values[name] for s in of_case if s.side is side and name in s.values] for side in Side}
            if any(by_side.values()):
                found.append(_row(section, case, figure, by_side))
    return found


def _row(section: str, case: str, figure: Figure, by_side: Mapping[Side, Sequence[float]]) -> Row:
    ours, theirs = picked(figure.pick, by_side[Side.ANTIPODE]), picked(figure.pick, by_side[Side.PEER])
    ratio = ours / theirs if ours is not None and theirs else None
    target = figure.target_of(case)
    return Row(
        section=section,
        case=case,
        figure=figure.title,
        unit=figure.unit,
        ours=ours,
        theirs=theirs,
        ratio=ratio,
        target=str(target),
        is_reached=target.is_reached(ours, ratio) if ours is not None and str(target) else None,
    )
