"""The asynchronous producer: records in, batches by partition, Produce requests to leaders,
deliveries out.
"""
