"""The data source "antipode": what Spark's Kafka connector does, at either site of a link."""
