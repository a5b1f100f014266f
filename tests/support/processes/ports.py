"""Free ports for tests: those that `antipode up` would choose."""

from deploy.ports import LOOPBACK, free_port, free_ports

__all__ = ["LOOPBACK", "free_port", "free_ports"]
