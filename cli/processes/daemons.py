"""`antipode broker`, `controller`, `mirror` and `bridge`: one process of a real deployment, from a
properties file, until SIGTERM.

They read the same kind of file, log one line for each event to standard error, and exit with 0
after an orderly stop, 1 after a problem (one message describes it), 2 for wrong usage.
"""

from __future__ import annotations

import asyncio
import enum
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from cli.shared.failures import failures_as_messages, usage_error
from runtime.config_providers import looked_up
from runtime.configuration import ConfigurationError, UnreadableFile, read_properties
from runtime.logs import configure, get_logger
from runtime.process import ExitCode, run_daemon

log = get_logger(__name__)


class LogLevel(enum.StrEnum):
    """The values of `--log-level`."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


Config = Annotated[
    Path, typer.Option("--config", "-c", help="Properties file: key=value lines, Kafka's names where Kafka has one.")
]
Override = Annotated[
    list[str] | None, typer.Option("--override", help="key=value that overrides the file; may be given again.")
]
Level = Annotated[
    LogLevel, typer.Option("--log-level", help="Least important line that is logged.", case_sensitive=False)
]
LogFile = Annotated[Path | None, typer.Option("--log-file", help="Log into this file instead of standard error.")]
StateChangeLog = Annotated[
    Path | None,
    typer.Option("--state-change-log", help="Changes of leaders, links and replicas go only into this file."),
]
AuditLog = Annotated[
    Path | None,
    typer.Option(
        "--audit-log",
        help="The audit log (changes and refused changes, with their principals) goes only into this file.",
    ),
]
CheckOnly = Annotated[bool, typer.Option("--dry-run", help="Check the configuration, start nothing.")]

Background = Annotated[
    bool,
    typer.Option(
        "--daemon", help="Check the configuration, then continue detached from the terminal; needs --log-file."
    ),
]

Clusters = Annotated[
    list[str] | None,
    typer.Option(
        "--clusters",
        help="Of a MirrorMaker 2 file only the flows to these clusters, comma-separated; may be given again.",
    ),
]

Properties = dict[str, str]


def broker(
    config: Config,
    override: Override = None,
    log_level: Level = LogLevel.INFO,
    log_file: LogFile = None,
    state_change_log: StateChangeLog = None,
    audit_log: AuditLog = None,
    is_dry_run: CheckOnly = False,
    is_daemon: Background = False,
) -> None:
    """Run one broker of a site, with its controller candidate and site agent.

    Needed in the file: node.id, listeners, log.dirs, zookeeper.connect, antipode.site.name;
    antipode.site.number of all sites but one. `antipode.controller.candidate=false` leaves the
    controller to others.

    Example: antipode broker --config server.properties --override log.dirs=data
    """
    from broker.settings.loading import load_broker_settings
    from cli.embedding.hosting import run_broker
    from controller.config import ControllerSettings
    from runtime.configuration import check_all, load_settings
    from wire.access.protection import check_daemon

    def check(properties: Properties) -> None:
        check_all(
            lambda: load_broker_settings(properties),
            lambda: check_daemon(properties),
            lambda: load_settings(ControllerSettings, properties),
        )

    properties = _read("broker", config, override, log_level, (log_file, state_change_log, audit_log))
    _run(
        lambda stop: run_broker(properties, stop),
        lambda: check(properties),
        config=config,
        is_dry_run=is_dry_run,
        background=_background(log_file, is_daemon=is_daemon),
    )


def controller(
    config: Config,
    override: Override = None,
    log_level: Level = LogLevel.INFO,
    log_file: LogFile = None,
    state_change_log: StateChangeLog = None,
    audit_log: AuditLog = None,
    is_dry_run: CheckOnly = False,
    is_daemon: Background = False,
) -> None:
    """Run a controller candidate alone, for sites whose brokers do not run for election.

    Needed in the file: node.id, zookeeper.connect, antipode.site.name, antipode.grpc.listener;
    antipode.site.number as its brokers.

    Example: antipode controller --config controller.properties
    """
    from cli.embedding.hosting import run_controller
    from cli.processes.controller_file import load_controller_file
    from runtime.configuration import check_all
    from wire.access.protection import check_daemon

    def check() -> None:
        check_all(lambda: load_controller_file(properties), lambda: check_daemon(properties))

    properties = _read("controller", config, override, log_level, (log_file, state_change_log, audit_log))
    _run(
        lambda stop: run_controller(properties, stop),
        check,
        config=config,
        is_dry_run=is_dry_run,
        background=_background(log_file, is_daemon=is_daemon),
    )


def mirror(
    config: Config,
    override: Override = None,
    clusters: Clusters = None,
    log_level: Level = LogLevel.INFO,
    log_file: LogFile = None,
    state_change_log: StateChangeLog = None,
    audit_log: AuditLog = None,
    is_dry_run: CheckOnly = False,
    is_daemon: Background = False,
) -> None:
    """Run the mirror daemon of a link, beside the link's target.

    Between two Antipode sites the file needs link.name and site.agents (gRPC addresses of the
    target site's brokers); filters and the epoch are the link's own. Where an end is Apache Kafka,
    link.mode=translate with source.bootstrap.servers and target.bootstrap.servers. MirrorMaker's
    names for queue, streams, producers and filters are accepted, and so is an unchanged file of
    MirrorMaker 2: the verdict on each of its keys is printed. For another file, only the ignored
    keys are printed.

    Example: antipode mirror --config connect-mirror-maker.properties
    """
    from mirror.running import run_all
    from mirror.settings.config import load_configs
    from mirror.settings.plaintext_links import check_protection, protect_mirror

    properties = _read("mirror", config, override, log_level, (log_file, state_change_log, audit_log))
    targets = [name.strip() for text in clusters or () for name in text.split(",") if name.strip()]

    def check() -> None:
        configs = load_configs(properties, targets=targets)
        check_protection(properties, configs)
        _report_verdicts(properties)

    async def run(stop: asyncio.Event) -> None:
        configs = load_configs(properties, targets=targets)
        protect_mirror(properties, configs)
        await run_all(configs, stop)

    _run(run, check, config=config, is_dry_run=is_dry_run, background=_background(log_file, is_daemon=is_daemon))


def bridge(
    config: Config,
    override: Override = None,
    log_level: Level = LogLevel.INFO,
    log_file: LogFile = None,
    audit_log: AuditLog = None,
    is_dry_run: CheckOnly = False,
    is_daemon: Background = False,
) -> None:
    """Run the HTTP bridge: produce, consume in groups and administer a site over HTTP, as with the
    Kafka REST proxy.

    Needed in the file: bootstrap.servers, best with brokers of both sites of a link. The REST
    proxy's names are accepted; producer.* and consumer.* go to the clients underneath.

    Example: antipode bridge --config bridge.properties --override listeners=http://127.0.0.1:8082
    """
    from bridge.access.security import load_bridge_security
    from bridge.config import load_bridge_settings
    from bridge.main import run_bridge
    from wire.access.metrics import metrics_certificates, protect_metrics

    async def run(stop: asyncio.Event) -> None:
        protect_metrics(properties)
        await run_bridge(properties, stop)

    properties = _read("bridge", config, override, log_level, (log_file, None, audit_log))
    _run(
        run,
        lambda: (
            load_bridge_security(properties, load_bridge_settings(properties)),
            metrics_certificates(properties),
        ),
        config=config,
        is_dry_run=is_dry_run,
        background=_background(log_file, is_daemon=is_daemon),
    )


def _report_verdicts(properties: Properties) -> None:
    """Print on standard error a line for each key of a MirrorMaker 2 file, and the count of each
    verdict; for a file of ours, a line for each idle key.
    """
    from mirror.settings.config import verdicts_on
    from mirror.settings.core.mirror_maker_file import is_mirror_maker_file

    verdicts = verdicts_on(properties)
    for verdict in verdicts:
        typer.echo(f"{verdict.key}: {verdict.fate.value} ({verdict.explanation})", err=True)
    if is_mirror_maker_file(properties):
        counts = Counter(verdict.fate.value for verdict in verdicts)
        reported = ", ".join(f"{count} {fate}" for fate, count in counts.most_common())
        typer.echo(f"{len(verdicts)} keys: {reported}", err=True)


def _read(
    process: str,
    config: Path,
    override: list[str] | None,
    log_level: LogLevel,
    files: tuple[Path | None, Path | None, Path | None],
) -> Properties:
    try:
        configure(process, level=log_level, file=files[0], state_change_file=files[1], audit_file=files[2])
    except OSError as error:
        raise usage_error(f"log file {error.filename!r} cannot be written ({error.strerror})") from error
    try:
        properties = read_properties(config)
        properties.update(parse_property(text, option="--override") for text in override or ())
        properties = looked_up(properties)
    except ConfigurationError as error:
        raise unusable_file(config, error) from error
    except ValueError as error:
        raise usage_error(str(error)) from error
    return properties


def unusable_file(file: Path, error: ConfigurationError) -> typer.Exit:
    """Print a usage error for each setting of the file that cannot be used; raise what it
    returns.
    """
    if isinstance(error, UnreadableFile):
        return usage_error(f"--config {error}")
    return usage_error("\n".join(f"{file}: {line}" for line in str(error).splitlines()))


def parse_property(text: str, *, option: str) -> tuple[str, str]:
    """`key=value` as a pair. ValueError says what is accepted."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ValueError(f"{option} {text!r}: accepted is key=value")
    return key.strip(), value.strip()


def _background(log_file: Path | None, *, is_daemon: bool) -> Path | None:
    if is_daemon and log_file is None:
        raise usage_error("--daemon needs --log-file: otherwise its log is lost")
    return log_file if is_daemon else None


def _run(
    main: Callable[[asyncio.Event], Awaitable[None]],
    check: Callable[[], object],
    *,
    config: Path,
    is_dry_run: bool,
    background: Path | None,
) -> None:
    with failures_as_messages():
        try:
            check()
        except ConfigurationError as error:
            raise unusable_file(config, error) from error
    if is_dry_run:
        typer.echo("the configuration is good; nothing was started")
        raise typer.Exit(ExitCode.DONE)
    if background is not None:
        typer.echo(f"process {_start_in_background(background)} continues; its further messages are in {background}")
        raise typer.Exit(ExitCode.DONE)
    try:
        code = run_daemon(main)
    except OSError:
        # of an error with a file name the command prints one line, which does not say where it is
        log.exception("unexpected error ends the process")
        raise
    raise typer.Exit(code)


def _start_in_background(log: Path) -> int:
    """Start this very command again in a session of its own; its pid."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--daemon"]
    with log.open("ab") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return started.pid
