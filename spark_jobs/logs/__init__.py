"""The logs of one site as Spark reads them: where they start and end, and their raw batches."""
