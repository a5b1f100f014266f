"""Decisions of disaster recovery, without IO, clock or chance: evidence in, next step out."""
