"""Changes of ACLs, quotas, credentials, tokens and configs of groups. Pure."""
