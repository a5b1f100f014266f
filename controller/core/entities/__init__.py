"""What a site keeps about clients and groups: ACLs, quotas, credentials, tokens, configs. Pure."""
