"""Samples, figures and reports, and the load of the machine during a run."""
