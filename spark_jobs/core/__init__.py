"""DataFrame in, DataFrame out, and plain interval arithmetic; nothing here reads a broker or writes
a file.
"""
