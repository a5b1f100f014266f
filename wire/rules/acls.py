"""ACLs of topics in the protocol's numbers, as all parts of a mirror understand them. Pure. Source:
KIP-11, KIP-290.
"""

from typing import Final, NamedTuple

ANY: Final = 1
LITERAL: Final = 3
PREFIXED: Final = 4
WILDCARD: Final = "*"
"""As a literal resource name: every topic."""

OPERATION_ALL: Final = 2
OPERATION_READ: Final = 3
OPERATION_WRITE: Final = 4
OPERATION_DESCRIBE: Final = 8
OPERATION_DESCRIBE_CONFIGS: Final = 10
DENY: Final = 2
ALLOW: Final = 3


class TopicAcl(NamedTuple):
    """One ACL of topics; pattern type, operation and permission by their numbers in the
    protocol.
    """

    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
