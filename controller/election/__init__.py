"""How a candidate becomes the active controller, and how it stops being it."""
