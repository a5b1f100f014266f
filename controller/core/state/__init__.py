"""The controller's view of its site, and the facts that change it. Pure."""
