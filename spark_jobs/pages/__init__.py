"""Parts of HTML pages that several jobs share."""
