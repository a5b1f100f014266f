"""Servers of other projects that keep files, documents and jobs, as child processes for tests."""
