"""The README's example in a process of its own, with Spark's settings as they are but for those that Braided asks for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import braided
from braided.spark.conf import PROVIDER

ROOT = Path(__file__).parents[2]


def main(folder: str, settings: str) -> None:
    """Run the example on the streams in a folder; write what `braided.report` prints into `report.txt`."""
    conf = braided.SPARK_CONF if settings == "all" else {PROVIDER: braided.SPARK_CONF[PROVIDER]}
    spark = SparkSession.builder.master("local[2]").config(map=conf).config("spark.ui.enabled", "false").getOrCreate()
    calls_dir, alerts_dir = f"{folder}/calls", f"{folder}/alerts"
    code = (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    names = {"spark": spark, "calls_dir": calls_dir, "alerts_dir": alerts_dir}
    exec(compile(code, "README.md", "exec"), names)
    report = braided.report(names["query"])
    Path(folder, "report.json").write_text(
        json.dumps({"text": str(report), "workers": len(report.workers), "results": report.query["results"]})
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
