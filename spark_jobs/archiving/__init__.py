"""Archives: topics as files on any file system, the check of an archive, and the restore into a
site.
"""
