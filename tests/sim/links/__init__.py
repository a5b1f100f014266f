"""Two simulated sites with a link between them (`tests/sim/README.md`)."""
