"""Sets up a machine and the outside programs of embedded sites: Java, ZooKeeper, toxiproxy.

Not a daemon and not part of one. It is used by `cli`, which imports it for `antipode up`, and
beside the Makefile, which runs `setup.py`. It imports only `runtime` of this project.
"""
