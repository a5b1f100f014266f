"""What an archive holds, plans, keeps and restores, as data. Pure."""
