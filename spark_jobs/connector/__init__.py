"""The data source "antipode": the functions of Spark's Kafka connector, at either site of a
link.
"""
