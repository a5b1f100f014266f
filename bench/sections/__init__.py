"""What is measured: one module a section of the report."""
