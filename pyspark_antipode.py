"""Spark's way to find a data source without a call in the job: it imports every module of its
Python path whose name begins with `pyspark_` and takes their `DefaultSource`.
"""

from spark_jobs.connector.source import AntipodeSource as DefaultSource

__all__ = ["DefaultSource"]
