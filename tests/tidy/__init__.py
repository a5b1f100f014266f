"""The project's habits as tests: they say what a reviewer would otherwise say again and again. Run
by `make check`.
"""
