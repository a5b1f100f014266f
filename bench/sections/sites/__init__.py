"""Sections about sites of several brokers, and about two linked sites."""
