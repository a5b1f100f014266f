"""The site agent: the gRPC service of one site for links and disaster recovery
(`wire/control/site.proto`), hosted in every broker process.

All state is in the site's ZooKeeper (`links_store.py`), so any agent of the site gives the same
answers. In memory an agent keeps a watched copy (`site_cache.py`) and the last answers of its peers
(`peer_watch.py`). `cli` makes a `SiteAgentHost` before it starts the process's gRPC server and
calls `start` after it, when the own broker's address is known.
"""

from __future__ import annotations

from dr.agent.answers.link_changes import LinkChanges
from dr.agent.answers.observations import Observations

SERVICE_NAME = "antipode.control.SiteAgent"


class SiteAgentService(Observations, LinkChanges):
    """Answers `SiteAgent`."""
