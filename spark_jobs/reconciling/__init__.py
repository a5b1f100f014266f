"""The comparison of two sites, wave by wave, with a verdict for every offset range."""
