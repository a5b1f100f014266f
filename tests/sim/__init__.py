"""A whole site in one thread, one virtual clock and one seed: see README.md."""
