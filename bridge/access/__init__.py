"""How the bridge identifies HTTP clients, protects their connections, and chooses the Kafka user
that acts for each.
"""
