"""Why a job failed, in one line: the innermost cause in the text of Spark's exceptions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from braided.fleet.causes import describe_failure, find_cause

PROXY = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/opt/python/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/python/braided/spark/sink.py", line 159, in run_files
    rows = files.collect()
           ^^^^^^^^^^^^^^^
"""
END = """
=== Streaming Query ===
Identifier: doubled [id = ad74fb0a-c502-4b6b-9bf2-186adfa18ad2, runId = eb44b431-cf3b-4023-8750-324448d5ca39]
Current State: ACTIVE
Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink, ad74fb0a, [queryName=doubled], Append
+- ~Project [n#9L AS c0#10L]
"""
DAMAGED = f"""{PROXY}  File "/opt/python/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o210.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///data/numbers/zz.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.lang.RuntimeException: file:/data/numbers/zz.parquet is not a Parquet file. Expected magic number at \
tail, but found [113, 117, 101, 116]
\tat org.apache.parquet.hadoop.ParquetFileReader.readFooter(ParquetFileReader.java:593)
\t... 12 more

{END}"""
RAISING = f"""{PROXY}  File "/opt/python/pyspark/errors/exceptions/captured.py", line 262, in deco
    raise converted from None
  File "pyspark/worker.py", line 2884, in _evaluate_batch_udf
    return [udf_func(*row) for row in rows]
    ^^^^^^^^^^^^^^^^^
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyspark/worker.py", line 2884, in _evaluate_batch_udf
    return [udf_func(*row) for row in rows]
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/steps/fraud.py", line 6, in score
    raise ZeroDivisionError("the seventh call")
ZeroDivisionError: the seventh call
{END}"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            DAMAGED,
            "RuntimeException: file:/data/numbers/zz.parquet is not a Parquet file. Expected magic number at tail, but "
            "found [113, 117, 101, 116]",
        ),
        (RAISING, "ZeroDivisionError: the seventh call (fraud.py, line 6, in score)"),
        # An inner cause that does not name the file.
        (
            DAMAGED.replace(
                "java.lang.RuntimeException: file:/data/numbers/zz.parquet is not a Parquet file.",
                "java.io.EOFException",
            ).replace(" Expected magic number at tail, but found [113, 117, 101, 116]", ""),
            "file:///data/numbers/zz.parquet: EOFException",
        ),
        # An exception of the user's own, without a message; Spark's own sinks have Java's text around it.
        (
            "Caused by: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the "
            'Python worker: Traceback (most recent call last):\n  File "/opt/steps/fraud.py", line 6, in score\n'
            "    raise Stop\nfraud.Stop\n SQLSTATE: 38000",
            "fraud.Stop (fraud.py, line 6, in score)",
        ),
        (
            f"{PROXY}pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] too large: 0 "
            f"SQLSTATE: P0001\n{END}",
            "[USER_RAISED_EXCEPTION] too large: 0",
        ),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n", "[DIVIDE_BY_ZERO] Division by zero."),
        (f"{PROXY}braided.errors.TopicError: /data/out: is gone\n{END}", "/data/out: is gone"),
        ("", "its query failed"),
    ],
)
def test_the_innermost_cause_is_found_in_a_line(text: str, expected: str) -> None:
    assert find_cause(text) == expected


def test_a_query_that_failed_is_described_by_all_its_exceptions() -> None:
    """Spark's own sinks: the text of a query's exception has no causes, Java's objects have."""

    def throwable(text: str, cause: Any = None) -> Any:
        return SimpleNamespace(toString=lambda: text, getCause=lambda: cause)

    inner = throwable("java.lang.RuntimeException: file:/data/zz.parquet is not a Parquet file.")
    middle = throwable("org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error", inner)
    outer = throwable(f"org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] ended{END}", middle)
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(exception=lambda: SimpleNamespace(isDefined=lambda: True, get=lambda: outer)))  # fmt: skip
    assert describe_failure(query) == "RuntimeException: file:/data/zz.parquet is not a Parquet file."
    ended: Any = SimpleNamespace(_jsq=SimpleNamespace(exception=lambda: SimpleNamespace(isDefined=lambda: False)))
    assert describe_failure(ended) == "its query has ended"
