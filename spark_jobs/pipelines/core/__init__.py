"""What pipelines decide without Spark."""
