"""Options, offsets, splits and filters of the data source, without IO."""
