"""The compatibility matrix: what other people's clients do at a site of three brokers, row by row;
`python -m tests.compatibility`.
"""
