"""The properties file of a controller that runs alone: its settings, and the file's other keys.

The file is often that of a broker, so keys of brokers are accepted silently; keys that no process
reads are logged, as by a broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.settings.foreign_configs import foreign_keys, reason_without_effect
from broker.settings.loading import read_keys
from controller.config import ControllerSettings
from runtime.configuration import load_settings, similar_key, unknown_keys
from runtime.logs import get_logger
from runtime.security.protection import check_site_protection

log = get_logger(__name__)


def load_controller_file(properties: Mapping[str, str]) -> ControllerSettings:
    """The settings. ConfigurationError for a value that cannot be used and for protection that is
    not there.
    """
    check_site_protection(properties)
    settings = load_settings(ControllerSettings, properties)
    known = read_keys() | foreign_keys()
    for key in unknown_keys(ControllerSettings, properties):
        if key not in known and reason_without_effect(key) is None:
            meant = similar_key(key, known)
            log.warning(
                "configuration key is not known to this controller", key=key, **({"meant": meant} if meant else {})
            )
    return settings
