"""The measurements: one module for each section of the report."""
