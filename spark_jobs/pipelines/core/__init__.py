"""The decisions of pipelines, without Spark."""
