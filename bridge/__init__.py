"""The HTTP bridge: produce, consume in groups, and administer a site over HTTP, in the shape of the
Kafka REST proxy's v2 and v3.
"""
