"""Sets up a machine and the outside programs of embedded sites: Java, ZooKeeper, toxiproxy.

Not a daemon and not part of one. `cli` imports it for `antipode up`, and the Makefile runs
`setup.py`. It imports only `runtime` of this project.
"""
