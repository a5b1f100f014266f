"""The sandbox of `antipode rehearse` on the standby's machine."""
