"""The compatibility matrix: the clients of other projects at a site of three brokers, row by row;
`python -m tests.compatibility`.
"""
