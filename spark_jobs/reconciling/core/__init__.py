"""The scope of a comparison, the search for differences, and their meaning: DataFrames in,
DataFrames out, and interval arithmetic. Nothing here reads a broker or writes a file.
"""
