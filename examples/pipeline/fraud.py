"""A declarative pipeline with a join of Braided as a flow; see README.md."""

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import braided

spark = SparkSession.active()
data = os.environ["FRAUD_DATA"]

calls = spark.readStream.format("braided").load(f"{data}/calls")
alerts = spark.readStream.format("braided").load(f"{data}/alerts")

# Built here, not in the function of the flow: there Spark forbids to ask for a schema, and a join asks for two.
hits = braided.join(calls, alerts, on="phone", time="ts", within="10 seconds", lateness="1 minute", name="fraud")

dp.create_sink("hits", "braided", {"path": f"{data}/hits"})


@dp.append_flow(target="hits")
def find_hits():
    return hits.select("phone", "ts", "cell", "reason")
