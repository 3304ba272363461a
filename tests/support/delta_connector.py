"""Reads Delta tables with Spark's own connector, and writes to one of them: a process, since it needs jars of its own.

    python delta_connector.py TABLES OUT JARS

All folders in TABLES are read, and their rows go to OUT as Parquet files of the same name. To the table `shared` Spark
appends one row, compacts it, and reads it as a stream. The last line that is printed has the number of rows of that
stream, and of each table the number of rows with a first column of 2 or more, for which files may be left out.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(tables: Path, out: Path, jars: str) -> None:
    """Do so, in UTC."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")  # else 50 tasks for the log of each table
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    counts = {}
    for table in sorted(tables.iterdir()):
        rows = spark.read.format("delta").load(str(table))
        rows.coalesce(1).write.option("compression", "none").parquet(str(out / table.name))
        counts[table.name] = rows.where(f"`{rows.columns[0]}` >= 2").count()
    spark.sql("SELECT -1L AS k, 'Spark' AS part").write.format("delta").mode("append").save(str(tables / "shared"))
    spark.sql(f"OPTIMIZE delta.`{tables / 'shared'}`")
    found = spark.readStream.format("delta").load(str(tables / "shared")).writeStream.format("noop")
    query = found.option("checkpointLocation", str(out / "check")).trigger(availableNow=True).start()
    query.awaitTermination()
    streamed = sum(batch["numInputRows"] for batch in query.recentProgress)
    print(json.dumps({"streamed": streamed, "counts": counts}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
