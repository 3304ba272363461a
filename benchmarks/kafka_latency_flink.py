"""Flink's interval join from Kafka to Kafka, for `kafka_latency.py --engine flink`; runs in Flink's own Python.

python benchmarks/kafka_latency_flink.py SERVERS JARS CHECKPOINTS     prints "started" and runs until it is killed
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flink import table_environment

CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
ROW = """
CREATE TABLE {name} (
  phone BIGINT, ts BIGINT, sent BIGINT, id BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts / 1000, 3),
  WATERMARK FOR rt AS rt - INTERVAL '5' SECOND
) WITH ({options}, 'format' = 'json')
"""
HITS = """
CREATE TABLE hits (phone BIGINT, sent BIGINT, id BIGINT, sent_right BIGINT, id_right BIGINT)
WITH ({options}, 'key.fields' = 'phone', 'key.format' = 'json', 'value.format' = 'json')
"""
JOIN = """
INSERT INTO hits
SELECT c.phone, c.sent, c.id, a.sent, a.id FROM calls c JOIN alerts a
ON c.phone = a.phone AND a.rt BETWEEN c.rt - INTERVAL '1' MINUTE AND c.rt + INTERVAL '1' MINUTE
"""


def fetch(folder: Path) -> Path:
    """Return the jar of the connector, by Maven if it is not there."""
    _, artifact, version = CONNECTOR.split(":")
    jar = folder / f"{artifact}-{version}.jar"
    if not jar.exists():
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={CONNECTOR}", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return jar


def main() -> None:
    """Run the job."""
    servers, folder, checkpoints = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    settings = {
        "pipeline.jars": fetch(folder).as_uri(),
        "execution.checkpointing.interval": "5 s",
        # In memory, Flink takes at most 5 MB of state: with more, checkpoints fail and the job starts again.
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": checkpoints.as_uri(),
    }
    tables = table_environment(settings)
    options = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'topic' = '{{name}}'"
    source = f"{options}, 'scan.startup.mode' = 'earliest-offset'"
    for name in ("calls", "alerts"):
        tables.execute_sql(ROW.format(name=name, options=source.format(name=name)))
    tables.execute_sql(HITS.format(options=options.format(name="hits")))
    job = tables.execute_sql(JOIN)
    print("started", flush=True)
    job.wait()


if __name__ == "__main__":
    main()
