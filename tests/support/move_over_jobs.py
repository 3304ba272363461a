"""Native streaming jobs as people write them, each over an `api` that is Spark's own or Braided.

A job moves over by one line: `left.join(right, condition, how)` to `braided.join(left, right, condition, how)`, or
`spark.sql(text)` to `braided.sql(spark, text, streams)`. Nothing else of a job differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType

Mode = Literal["append", "update", "complete"]
CLICKED = "clickAdId = adId AND clickTime >= adTime AND clickTime <= adTime + INTERVAL 8 SECONDS"
IN_SQL = "c.clickAdId = a.adId AND c.clickTime BETWEEN a.adTime AND a.adTime + INTERVAL 8 SECONDS"
FROM = f"FROM ads a JOIN clicks c ON {IN_SQL}"


class Api(Protocol):
    """What differs between a native job and one that has moved over."""

    def join(self, left: DataFrame, right: DataFrame, condition: str | Column, how: str = "inner") -> DataFrame:
        """Return two streams joined."""

    def sql(self, text: str, streams: dict[str, DataFrame]) -> DataFrame:
        """Return a query over streams."""


@dataclass(frozen=True)
class Streams:
    """The streams of every job: of ads shown and of clicks on them, without watermarks, and a table of campaigns."""

    spark: SparkSession
    ads: DataFrame
    clicks: DataFrame
    campaigns: DataFrame

    @property
    def marked(self) -> Streams:
        """The streams with watermarks, as most jobs have them."""
        return replace(
            self, ads=self.ads.withWatermark("adTime", "10 seconds"), clicks=self.clicks.withWatermark("clickTime", "15 seconds")
        )  # fmt: skip

    @property
    def by_name(self) -> dict[str, DataFrame]:
        """The two streams under the names that texts use."""
        return {"ads": self.ads, "clicks": self.clicks}


Build = Callable[[Api, Streams], DataFrame]


@dataclass(frozen=True)
class NativeJob:
    """A job: how it is built, how it is written, and what Braided says where it refuses it."""

    name: str
    build: Build
    mode: Mode = "append"
    keys: int = 0
    """How many columns name a row, in update mode: the last row of each counts."""
    quick: bool = False
    refused: str | None = None
    in_workers: bool | None = None
    """Whether its aggregate begins in the workers of the join; None where it has none."""


JOBS: list[NativeJob] = []


def job(
    name: str,
    *,
    mode: Mode = "append",
    keys: int = 0,
    quick: bool = False,
    refused: str | None = None,
    in_workers: bool | None = None,
) -> Callable[[Build], Build]:
    """Add a job to the list."""

    def add(build: Build) -> Build:
        JOBS.append(NativeJob(name, build, mode, keys, quick, refused, in_workers))
        return build

    return add


def sql_job(name: str, text: str, **options: Any) -> None:
    """Add a job that is one text over both streams with watermarks."""
    job(name, **options)(lambda api, s: api.sql(text, s.marked.by_name))


@job("the guide's inner join", quick=True)
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED))


@job("an inner join by operators of columns")
def _(api: Api, s: Streams) -> DataFrame:
    ads, clicks = s.marked.ads, s.marked.clicks
    near = (F.col("clickTime") >= F.col("adTime")) & (
        F.col("clickTime") <= F.col("adTime") + F.expr("INTERVAL 8 SECONDS")
    )
    return api.join(ads, clicks, (F.col("clickAdId") == F.col("adId")) & near)


@job("an inner join by columns of the DataFrames", quick=True)
def _(api: Api, s: Streams) -> DataFrame:
    ads, clicks = s.marked.ads, s.marked.clicks
    late = ads["adTime"] + F.expr("INTERVAL 8 SECONDS")
    joined = api.join(ads, clicks, (ads["adId"] == clicks["clickAdId"]) & clicks.clickTime.between(ads.adTime, late))
    return joined.select(ads["adId"], clicks["user"], clicks.clickTime, ads.cost)


@job("an inner join by aliases, and columns by them afterwards", quick=True)
def _(api: Api, s: Streams) -> DataFrame:
    ads, clicks = s.marked.ads.alias("a"), s.marked.clicks.withColumnRenamed("clickAdId", "adId").alias("c")
    near = F.expr("a.adId = c.adId AND c.clickTime BETWEEN a.adTime AND a.adTime + INTERVAL 8 SECONDS")
    return api.join(ads, clicks, near).select("a.adId", F.col("c.adId").alias("clicked"), "c.user", "a.adTime")


@job("an inner join with a further condition")
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.marked.ads, s.marked.clicks, F.expr(f"{CLICKED} AND amount > cost"))


@job("a left outer join, as the guide has it", quick=True)
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED), "leftOuter")


@job("a right outer join")
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED), "right_outer")


@job("a full outer join")
def _(api: Api, s: Streams) -> DataFrame:
    # Without null keys, which Spark's own full outer join of streams matches with each other (4.3).
    ads, clicks = s.marked.ads.where("adId IS NOT NULL"), s.marked.clicks.where("clickAdId IS NOT NULL")
    return api.join(ads, clicks, F.expr(CLICKED), "full")


@job("a left semi join")
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED), "left_semi")


@job("a self join by aliases")
def _(api: Api, s: Streams) -> DataFrame:
    one, other = s.marked.clicks.alias("x"), s.marked.clicks.alias("y")
    near = F.expr("x.user = y.user AND y.clickTime > x.clickTime AND y.clickTime <= x.clickTime + INTERVAL 3 SECONDS")
    return api.join(one, other, near).select("x.user", "x.clickTime", F.col("y.clickTime").alias("again"))


@job("windows counted after the join", quick=True, in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED))
    return joined.groupBy(F.window("adTime", "10 seconds")).count()


@job("windows and groups summed after the join", in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED))
    grouped = joined.groupBy(F.window("clickTime", "10 seconds", "5 seconds"), "campaign")
    return grouped.agg(F.sum("amount").alias("total"), F.avg("cost"), F.count("*").alias("n")).select(
        "window.start", "campaign", "total", "n"
    )


@job("windows of a computed column after the join", in_workers=False)
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED)).withColumn("double", F.col("amount") * 2)
    return joined.where("double > 6").groupBy(F.window("adTime", "10 seconds")).agg(F.sum("double"))


@job("a Python function before and after the join")
def _(api: Api, s: Streams) -> DataFrame:
    plus = F.udf(lambda n: None if n is None else n + 1, LongType())
    shout = F.udf(lambda text: None if text is None else text.upper(), StringType())
    ads = s.marked.ads.withColumn("next", plus("adId"))
    return api.join(ads, s.marked.clicks, F.expr(CLICKED)).select("next", shout("user").alias("user"))


@job("duplicates dropped before the join")
def _(api: Api, s: Streams) -> DataFrame:
    clicks = s.marked.clicks.dropDuplicates(["clickAdId", "clickTime"]).select("clickAdId", "clickTime")
    return api.join(s.marked.ads, clicks, F.expr(CLICKED))


@job("duplicates dropped within the watermark before the join")
def _(api: Api, s: Streams) -> DataFrame:
    clicks = s.marked.clicks.dropDuplicatesWithinWatermark(["clickAdId", "clickTime"])
    return api.join(s.marked.ads, clicks.select("clickAdId", "clickTime"), F.expr(CLICKED))


@job("duplicates dropped after the join")
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED))
    return joined.select("adId", "adTime", "user").dropDuplicates(["adId", "adTime", "user"])


@job("a table joined before the streams")
def _(api: Api, s: Streams) -> DataFrame:
    ads = s.marked.ads.join(s.campaigns, "campaign", "left")
    return api.join(ads, s.marked.clicks, F.expr(CLICKED))


@job("a table joined after the streams, and windows of its column")
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED)).join(s.campaigns, "campaign")
    return joined.groupBy(F.window("adTime", "10 seconds"), "owner").count()


@job("a union before the join")
def _(api: Api, s: Streams) -> DataFrame:
    some, others = s.ads.where("adId < 3"), s.ads.where("adId >= 3")
    return api.join(some.union(others).withWatermark("adTime", "10 seconds"), s.marked.clicks, F.expr(CLICKED))


@job("a union of streams with watermarks before the join, and windows", in_workers=False)
def _(api: Api, s: Streams) -> DataFrame:
    some, others = s.marked.ads.where("adId < 3"), s.marked.ads.where("adId >= 3")
    joined = api.join(some.union(others), s.marked.clicks, F.expr(CLICKED))
    return joined.groupBy(F.window("adTime", "10 seconds")).count()


@job("a union of two joins")
def _(api: Api, s: Streams) -> DataFrame:
    quick = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED)).select("adId", "user")
    before = api.join(s.marked.ads, s.marked.clicks, F.expr(
        "clickAdId = adId AND clickTime < adTime AND clickTime >= adTime - INTERVAL 2 SECONDS"))  # fmt: skip
    return quick.union(before.select("adId", "user"))


@job("pandas before the join")
def _(api: Api, s: Streams) -> DataFrame:
    def cheap(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for part in parts:
            yield part[part["cost"] < 8]

    ads = s.ads.mapInPandas(cheap, s.ads.schema).withWatermark("adTime", "10 seconds")
    return api.join(ads, s.marked.clicks, F.expr(CLICKED))


@job("JSON parsed, times cast and arrays exploded before the join")
def _(api: Api, s: Streams) -> DataFrame:
    raw = s.clicks.select(
        F.to_json(
            F.struct(F.col("clickAdId").alias("id"), F.col("clickTime").cast("string").alias("at"), "amount")
        ).alias("value")
    )
    parsed = raw.select(F.from_json("value", "id BIGINT, at STRING, amount INT").alias("v")).select("v.*")
    clicks = parsed.select(
        "id", F.to_timestamp("at").alias("clickTime"), F.explode(F.array("amount", F.lit(0))).alias("part")
    )
    clicks = clicks.withWatermark("clickTime", "15 seconds").withColumnRenamed("id", "clickAdId")
    return api.join(s.marked.ads, clicks, F.expr(CLICKED)).select("adId", "part", "clickTime")


@job("windows of a join in update mode", mode="update", keys=2, in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED))
    return joined.groupBy(F.window("adTime", "10 seconds"), "campaign").agg(F.count("*").alias("n"))


@job("groups of a join in complete mode", mode="complete")
def _(api: Api, s: Streams) -> DataFrame:
    return (
        api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED)).groupBy("campaign").agg(F.sum("amount"), F.count("*"))
    )


@job("a key that is a string on one side", quick=True)
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED.replace("clickAdId", "code")))


@job("keys that are decimals of different scales")
def _(api: Api, s: Streams) -> DataFrame:
    ads = s.marked.ads.withColumn("price", F.col("adId").cast("decimal(10,2)"))
    clicks = s.marked.clicks.withColumn("paid", F.col("clickAdId").cast("decimal(12,4)"))
    return api.join(ads, clicks, F.expr(CLICKED.replace("clickAdId = adId", "paid = price")))


@job("keys that are structs, with nulls in them")
def _(api: Api, s: Streams) -> DataFrame:
    ads = s.marked.ads.withColumn("k", F.struct(F.col("adId").alias("id"), F.lit(1).alias("one")))
    clicks = s.marked.clicks.withColumn("j", F.struct(F.col("clickAdId").alias("id"), F.lit(1).alias("one")))
    return api.join(ads, clicks, F.expr(CLICKED.replace("clickAdId = adId", "j = k"))).select(
        "adId", "user", "clickTime"
    )


@job("several keys, one of them computed")
def _(api: Api, s: Streams) -> DataFrame:
    near = CLICKED.replace("clickAdId = adId", "clickAdId = adId AND upper(campaign) = upper(user)")
    return api.join(s.marked.ads, s.marked.clicks.withColumn("user", F.lower("site")), F.expr(near))


@job("keys that are lists")
def _(api: Api, s: Streams) -> DataFrame:
    s = s.marked
    ads = s.ads.withColumn("tags", F.array("campaign", F.col("adId").cast("string")))
    clicks = s.clicks.withColumn("labels", F.array("site", F.col("clickAdId").cast("string")))
    near = F.expr(f"tags = labels AND {CLICKED.partition(' AND ')[2]}")
    return api.join(ads, clicks, near).select("adId", "user", "clickTime")


@job("windows counted after a left join", in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(CLICKED), "left")
    counts = F.count("*").alias("n"), F.count("user").alias("clicked"), F.max("amount").alias("most")
    return joined.groupBy(F.window("adTime", "10 seconds"), "campaign").agg(*counts)


@job("windows counted after a full join, of the time that some rows lack", in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    joined = api.join(s.marked.ads, s.marked.clicks, F.expr(f"clickAdId IS NOT NULL AND {CLICKED}"), "full")
    return joined.groupBy(F.window("clickTime", "10 seconds")).agg(F.count("*").alias("n"), F.sum("cost").alias("cost"))


@job("a bound on one side only", refused=r"no bounds on both sides.*cap")
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.marked.ads, s.marked.clicks, F.expr("clickAdId = adId AND clickTime >= adTime"))


@job("no bound on times at all", refused=r"no bounds on both sides")
def _(api: Api, s: Streams) -> DataFrame:
    return api.join(s.ads, s.clicks, F.expr("clickAdId = adId"))


sql_job("a join in SQL", f"SELECT a.adId, a.campaign, c.user, c.clickTime {FROM} WHERE c.amount > 3", quick=True)
sql_job(
    "windows counted in SQL",
    f"SELECT window(a.adTime, '10 seconds') AS w, count(*) AS n {FROM} GROUP BY window(a.adTime, '10 seconds')",
    quick=True, in_workers=True,
)  # fmt: skip
sql_job(
    "windows and groups in SQL, with HAVING",
    f"""SELECT window.start, window.end, a.campaign, sum(c.amount) AS total, avg(a.cost) AS mean, min(c.clickTime) AS first, max(c.amount)
        {FROM} GROUP BY window(a.adTime, '10 seconds', '5 seconds'), a.campaign HAVING count(*) > 1""",
    in_workers=True,
)  # fmt: skip
sql_job(
    "common table expressions in SQL",
    f"""WITH cheap AS (SELECT * FROM ads WHERE cost < 9), real AS (SELECT clickAdId, clickTime, amount FROM clicks WHERE user <> 'u9')
        SELECT window(a.adTime, '10 seconds') AS w, count(*) AS n FROM cheap a JOIN real c ON {IN_SQL} GROUP BY window(a.adTime, '10 seconds')""",
    quick=True, in_workers=True,
)  # fmt: skip
sql_job(
    "subqueries in SQL, and a window that only the inner one names",
    f"""SELECT w.start, n FROM (SELECT window(adTime, '10 seconds') AS w, count(*) AS n
        FROM (SELECT a.adTime, c.amount {FROM}) GROUP BY window(adTime, '10 seconds')) WHERE n > 1""",
    in_workers=False,
)  # fmt: skip
sql_job(
    "a window without an alias in a subquery",
    f"SELECT window.start AS s, n FROM (SELECT window(a.adTime, '10 seconds'), count(*) AS n {FROM} GROUP BY window(a.adTime, '10 seconds'))",
    in_workers=True,
)
sql_job(
    "a union of two joins in SQL",
    f"SELECT a.adId AS id {FROM} WHERE c.amount > 5 UNION ALL SELECT c.clickAdId {FROM} WHERE c.amount <= 2",
)
sql_job(
    "count_if, mean and every in SQL",
    f"""SELECT window(a.adTime, '10 seconds') AS w, count_if(c.amount > 4) AS large, mean(c.amount) AS mean, every(a.cost > 1) AS all
        {FROM} GROUP BY window(a.adTime, '10 seconds')""",
    in_workers=True,
)  # fmt: skip
sql_job(
    "GROUP BY ALL in SQL",
    f"SELECT window(a.adTime, '10 seconds') AS w, a.campaign, count(*) AS n {FROM} GROUP BY ALL",
    in_workers=True,
)
sql_job(
    "FILTER over both streams in SQL",
    f"""SELECT window(a.adTime, '10 seconds') AS w, count(*) FILTER (WHERE c.amount > a.cost) AS dear, sum(c.amount) FILTER (WHERE a.campaign = 'x') AS x
        {FROM} GROUP BY window(a.adTime, '10 seconds')""",
)  # fmt: skip
sql_job(
    "least and greatest strings and doubles in SQL",
    f"SELECT window(a.adTime, '10 seconds') AS w, min(c.user) AS u, max(a.cost) AS most, min(a.campaign) AS c {FROM} GROUP BY window(a.adTime, '10 seconds')",
)
sql_job(
    "groups by date_trunc in SQL, in update mode",
    f"SELECT date_trunc('MINUTE', a.adTime) AS minute, count(*) AS n {FROM} GROUP BY date_trunc('MINUTE', a.adTime)",
    mode="update", keys=1,
)  # fmt: skip
sql_job(
    "session windows after a join in SQL",
    f"SELECT session_window(a.adTime, '2 seconds') AS s, a.campaign, count(*) AS n {FROM} GROUP BY session_window(a.adTime, '2 seconds'), a.campaign",
)
sql_job(
    "approximate distinct counts in SQL",
    f"SELECT window(a.adTime, '10 seconds') AS w, approx_count_distinct(c.user) AS users {FROM} GROUP BY window(a.adTime, '10 seconds')",
)
sql_job(
    "windows counted before the join, which is by window, in SQL",
    """SELECT a.w, a.n, c.m FROM (SELECT window(adTime, '10 seconds') AS w, count(*) AS n FROM ads GROUP BY window(adTime, '10 seconds')) a
       JOIN (SELECT window(clickTime, '10 seconds') AS w, count(*) AS m FROM clicks GROUP BY window(clickTime, '10 seconds')) c ON a.w = c.w""",
)
sql_job(
    "columns that both streams have, and USING, in SQL",
    """SELECT k, a.cost, c.user FROM (SELECT adId AS k, adTime, cost FROM ads) a JOIN (SELECT clickAdId AS k, clickTime, user FROM clicks) c
       USING (k) WHERE c.clickTime BETWEEN a.adTime AND a.adTime + INTERVAL 8 SECONDS""",
)
sql_job(
    "three streams in SQL",
    """SELECT a.adId, c.user, d.amount FROM ads a JOIN clicks c ON c.clickAdId = a.adId AND c.clickTime BETWEEN a.adTime AND a.adTime + INTERVAL 4 SECONDS
       JOIN clicks d ON d.user = c.user AND d.clickTime BETWEEN c.clickTime AND c.clickTime + INTERVAL 1 SECOND""",
)
sql_job(
    "CASE, LIKE, IN and arithmetic in SQL",
    f"""SELECT CASE WHEN c.amount > 5 THEN 'large' ELSE 'small' END AS size, a.cost * c.amount AS paid, c.user LIKE 'u1%' AS one
        {FROM} WHERE a.campaign IN ('x', 'y') AND c.user IS NOT NULL""",
)  # fmt: skip
sql_job(
    "a left join in SQL",
    f"SELECT a.adId, c.user {FROM.replace('JOIN', 'LEFT JOIN')}",
)


@job("a table joined with streams in SQL")
def _(api: Api, s: Streams) -> DataFrame:
    s.campaigns.createOrReplaceTempView("campaigns")
    text = (
        f"SELECT a.adId, c.user, t.owner {FROM} JOIN campaigns t ON t.campaign = a.campaign WHERE t.owner <> 'nobody'"
    )
    return api.sql(text, s.marked.by_name)


@job("a Python function in SQL")
def _(api: Api, s: Streams) -> DataFrame:
    s.spark.udf.register("tripled", lambda n: None if n is None else 3 * n, LongType())
    return api.sql(f"SELECT tripled(a.adId) AS t, c.user {FROM} WHERE tripled(c.amount) > 6", s.marked.by_name)


@job("the same stream twice in SQL, with windows", in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    text = """SELECT window(x.clickTime, '10 seconds') AS w, x.user, count(*) AS n FROM clicks x JOIN clicks y ON x.user = y.user
              AND y.clickTime > x.clickTime AND y.clickTime <= x.clickTime + INTERVAL 3 SECONDS GROUP BY window(x.clickTime, '10 seconds'), x.user"""
    return api.sql(text, s.marked.by_name)


@job("windows in SQL in update mode", mode="update", keys=2, in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    text = f"SELECT window(a.adTime, '10 seconds') AS w, a.campaign, sum(c.amount) AS n {FROM} GROUP BY window(a.adTime, '10 seconds'), a.campaign"
    return api.sql(text, s.marked.by_name)


@job("windows in SQL in complete mode", mode="complete", in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    text = f"SELECT window(a.adTime, '10 seconds') AS w, count(*) AS n {FROM} GROUP BY window(a.adTime, '10 seconds')"
    return api.sql(text, s.marked.by_name)


@job("windows in SQL without watermarks, in update mode", mode="update", keys=1, in_workers=True)
def _(api: Api, s: Streams) -> DataFrame:
    text = f"SELECT window(a.adTime, '10 seconds') AS w, count(*) AS n {FROM} GROUP BY window(a.adTime, '10 seconds')"
    return api.sql(text, s.by_name)


@job("duplicates dropped before the join in SQL, and windows", in_workers=False)
def _(api: Api, s: Streams) -> DataFrame:
    clicks = s.marked.clicks.dropDuplicates(["clickAdId", "clickTime"])
    text = f"SELECT window(a.adTime, '10 seconds') AS w, count(*) AS n {FROM} GROUP BY window(a.adTime, '10 seconds')"
    return api.sql(text, {"ads": s.marked.ads, "clicks": clicks})


@job("windows of a join and of one of its streams, in one query")
def _(api: Api, s: Streams) -> DataFrame:
    text = f"""SELECT window(a.adTime, '10 seconds') AS w, count(*) AS n {FROM} GROUP BY window(a.adTime, '10 seconds')
               UNION ALL SELECT window(adTime, '10 seconds'), count(*) FROM ads GROUP BY window(adTime, '10 seconds')"""
    return api.sql(text, s.marked.by_name)
