"""The leases of links: permits for the own broker, from the arbiter or by the standby's vow."""
