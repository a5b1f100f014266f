"""Topics as files on any file system, the check of an archive, and the way back into a site."""
