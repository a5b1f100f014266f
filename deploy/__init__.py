"""Setting a machine up and the outside programs that embedded sites run on: Java, ZooKeeper,
toxiproxy.

Not a daemon and not part of one: it stands beside `cli`, which imports it for `antipode up`, and
beside the Makefile, which runs `setup.py`. It imports nothing of the house but `runtime`.
"""
