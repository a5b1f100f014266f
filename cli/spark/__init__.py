"""The commands that run jobs of `spark_jobs`."""
