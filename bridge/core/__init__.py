"""Pure decisions of the HTTP bridge: media types, embedded formats, error numbers, splitting a
stream of documents, resources.
"""
