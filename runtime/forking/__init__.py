"""A process that has imported modules and forks children, and its owner's side."""
