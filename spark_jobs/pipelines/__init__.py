"""Pipelines over topics that go on at the other site of a link: `README.md` has the list."""
