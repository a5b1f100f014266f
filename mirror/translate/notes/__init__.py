"""The stored state of a translate link, as records of its compacted topic at the target: layouts,
the store that reads and writes them, and readers of other links' notes.
"""
