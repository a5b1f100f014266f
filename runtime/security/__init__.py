"""The protection of a process: required protection, the audit log, and replaced certificates."""
