"""What is compared, how differences are found, and what they mean: DataFrames in, DataFrames out,
and interval arithmetic. Nothing here reads a broker or writes a file.
"""
