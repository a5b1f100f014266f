"""The byte stream of a connection: frames with their headers, compressed chunks, and progress that
puts a deadline off.
"""
