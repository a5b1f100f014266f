"""The house's habits as tests: what a reviewer would otherwise say again and again. Run by
`make check`.
"""
