"""Pipelines over topics that continue at the other site of a link; `README.md` has the list."""
