"""Parts of HTML pages as text. Pure."""
