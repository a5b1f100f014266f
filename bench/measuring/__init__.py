"""Samples, figures and reports, and what the machine does meanwhile."""
