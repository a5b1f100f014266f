"""Creates the links of embedded sites that do not exist yet."""

from __future__ import annotations

from dataclasses import dataclass

from cli.embedding.site_layout import (
    LinkLayout,
    SiteLayout,
)
from dr.links.administration import LinkSpec, SiteAddresses, check_link, make_link, stored_link
from dr.links.core.link_preflight import Outcome
from dr.sites.channels import Channels
from dr.sites.site_client import SiteClient, SiteUnreachable
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import DEFAULT_TOPIC_BLACKLIST, FailoverMode, SyncPolicy, blacklist_of

ARBITER_REACHED_MS = 20_000
BROKERS_REGISTERED_MS = 30_000
SITE_ANSWERED_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFilters:
    """The topics that the links of embedded sites carry, by regular expressions on whole names, and
    whether the source waits for the target.
    """

    topic_whitelist: tuple[str, ...] = (".*",)
    topic_blacklist: tuple[str, ...] = DEFAULT_TOPIC_BLACKLIST
    group_whitelist: tuple[str, ...] = (".*",)
    group_blacklist: tuple[str, ...] = ()
    sync: SyncPolicy = SyncPolicy.NONE
    sync_bound_ms: int = 0
    lease_ms: int = 0
    failover_mode: FailoverMode = FailoverMode.MANUAL


async def ensure_link(link: LinkLayout, filters: LinkFilters) -> None:
    """Make the link unless it is there. OperationalFailure when it is there with other filters, or
    another sync policy.

    A site that does not answer is asked again for a while: on a busy machine the ZooKeeper session
    of a broker that has just started can be interrupted.
    """
    async for attempt in jittered_backoff(retry_on=SiteUnreachable, budget_ms=SITE_ANSWERED_MS):
        with attempt:
            await _ensure_link(link, filters)


async def _ensure_link(link: LinkLayout, filters: LinkFilters) -> None:
    channels = Channels()
    try:
        source, target = (
            SiteClient(site.name, [broker.grpc for broker in site.brokers], channels)
            for site in (link.source, link.target)
        )
        spec = _link_spec(link, filters)
        stored = await stored_link(link.name, target)
        if stored is None:
            for site in (link.source, link.target):
                await _until_registered(site)
            await _create_link(spec, source=source, target=target)
        elif not _has_filters_of(stored, spec):
            raise OperationalFailure(
                f"link {link.name} exists and carries topics {','.join(stored.topic_whitelist)} without "
                f"{','.join(blacklist_of(stored)) or 'exception'}, sync policy {stored.sync_policy or 'none'}; give the same "
                "--whitelist, --blacklist and --sync, or another --dir"
            )
    finally:
        await channels.close()


async def _until_registered(site: SiteLayout) -> None:
    """Wait until the site's controller knows all brokers, because the check of a link counts them.
    A broker whose session has just ended on a busy machine registers again.
    """
    controller = ControllerClient(lambda: [broker.grpc for broker in site.brokers])
    try:
        async for attempt in jittered_backoff(retry_on=OperationalFailure, budget_ms=BROKERS_REGISTERED_MS):
            with attempt:
                live = len((await controller.describe_controller()).brokers)
                if live < len(site.brokers):
                    raise OperationalFailure(
                        f"the controller of site {site.name} knows {live} of {len(site.brokers)} brokers after "
                        f"{BROKERS_REGISTERED_MS} ms: see the brokers' logs under {site.directory}"
                    )
    except ControllerUnavailable as error:
        raise OperationalFailure(f"site {site.name}: {error}") from error
    finally:
        await controller.close()


async def _create_link(spec: LinkSpec, *, source: SiteClient, target: SiteClient) -> None:
    """Make the link; brokers that have just started may not have reached the arbiter yet."""
    async for attempt in jittered_backoff(retry_on=OperationalFailure, budget_ms=ARBITER_REACHED_MS):
        with attempt:
            checked = await check_link(spec, source=source, target=target)
            if any(check.check == "arbiter" and check.outcome is Outcome.REFUSED for check in checked.checks):
                raise OperationalFailure("; ".join(checked.problems))
    await make_link(checked, source=source, target=target)


def _link_spec(link: LinkLayout, filters: LinkFilters) -> LinkSpec:
    return LinkSpec(
        name=link.name,
        source_site=link.source.name,
        target_site=link.target.name,
        source=_addresses(link.source),
        target=_addresses(link.target),
        topic_whitelist=filters.topic_whitelist,
        topic_blacklist=filters.topic_blacklist,
        group_whitelist=filters.group_whitelist,
        group_blacklist=filters.group_blacklist,
        sync=filters.sync,
        sync_bound_ms=filters.sync_bound_ms,
        lease_ms=filters.lease_ms,
        failover_mode=filters.failover_mode,
    )


def _addresses(site: SiteLayout) -> SiteAddresses:
    return SiteAddresses(
        bootstrap_servers=site.link_bootstrap_servers, agents=[broker.grpc_advertised for broker in site.brokers]
    )


def _has_filters_of(record: LinkRecord, spec: LinkSpec) -> bool:
    """True if the stored link carries the requested topics. A link that lists nothing and is older
    than the default has the default.
    """
    is_older_default = not record.is_blacklist_complete and not record.topic_blacklist
    return (
        tuple(record.topic_whitelist),
        DEFAULT_TOPIC_BLACKLIST if is_older_default else tuple(record.topic_blacklist),
        tuple(record.group_whitelist),
        tuple(record.group_blacklist),
        record.sync_policy,
    ) == (spec.topic_whitelist, spec.topic_blacklist, spec.group_whitelist, spec.group_blacklist, spec.sync.value)
