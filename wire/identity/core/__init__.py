"""Pure: subjects, rules for principals, JSON web tokens."""
