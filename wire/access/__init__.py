"""Access to the control plane: maps certificates and tokens to callers, callers to roles, roles to
methods.

`core/` decides (pure), `settings.py` has the options, `credentials.py` makes gRPC's credentials of
them, `guard.py` checks each call at the server.
"""
