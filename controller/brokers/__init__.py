"""Reports decisions to the brokers of the site, and to the state-change log."""
