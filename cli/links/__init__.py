"""`antipode links`: the links between sites."""
