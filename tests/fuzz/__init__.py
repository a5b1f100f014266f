"""Fuzz targets: one module a target, with `run(data)`, which raises only on a defect, and
`seeds()`, which gives messages to mutate.

`make fuzz` drives them with atheris; `tests/property/test_fuzz_targets.py` drives the same
functions with hypothesis and replays `corpus/<target>/`, where each file is an input that once
showed a defect.
"""
