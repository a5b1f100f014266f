"""How the standby of a link follows other sites, in a sentence: what its own record says."""

from __future__ import annotations

from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import other_site


def following_sentence(record: LinkRecord) -> str:
    """The sentence for a record as the link's standby has stored it; empty for a link whose active
    site has no other standby.
    """
    standby = other_site(record, record.active_site)
    others = sorted(record.sites.keys() - {record.source_site, record.target_site})
    sentences = []
    if record.replaced_site:
        sentences.append(f"{standby} follows {record.active_site} in place of {record.replaced_site}")
    sentences += [f"{standby} follows {other} if {other} is promoted" for other in others]
    return "; ".join(sentences)
