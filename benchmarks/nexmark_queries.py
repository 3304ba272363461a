"""NEXMark's queries with joins, as each engine reads them, and what DuckDB makes of the same events.

Texts that differ in nothing but the name of a function are one text: `{A}` is the time of an auction in milliseconds,
`{B}` that of a bid, `{E}` when an auction expires. All joins are bounded by `CAP`, for every engine. A query that
closes windows gives `start_ms`, by which those that every engine has closed are compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workloads import checksum

CAP = "INTERVAL '10' SECOND"
LATENESS = "4 seconds"
"""Events are up to 3 s late; Flink's and Spark's watermarks follow at this distance, as in the public benchmark."""
_IN_ANY_ORDER = "'lateness=30 seconds'"
"""Of windows that Spark has closed: those that close in one batch, of 20 s, come in any order."""

_MS = {
    "spark": {"A": "unix_millis(A.dateTime)", "B": "unix_millis(B.dateTime)", "E": "unix_millis(A.expires)"},
    "flink": {"A": "A.ms", "B": "B.ms", "E": "A.expires_ms"},
    "duckdb": {"A": "epoch_ms(A.dateTime)", "B": "epoch_ms(B.dateTime)", "E": "epoch_ms(A.expires)"},
}
_FLINK_START = "timestampdiff(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) * CAST(1000 AS BIGINT)"


@dataclass(frozen=True)
class Query:
    """A query: what it asks, the streams it reads, its text for each engine, and a part of its checksum."""

    title: str
    streams: tuple[str, ...]
    part: tuple[str, str, str]
    spark: str
    flink: str
    duckdb: str
    braided: str = ""
    """Where it is not that of Spark. Streams with a watermark, for Spark's own operators, have names in `_marked`."""
    views: tuple[str, ...] = ()
    """What Flink is told first."""
    windowed: bool = False

    def text(self, engine: str) -> str:
        """Return the text for an engine."""
        if engine == "braided":
            return _spelled(self.braided or self.spark, "spark")
        return _spelled(getattr(self, engine), engine)

    def flink_views(self) -> list[str]:
        """Return the views that Flink's text reads."""
        return [_spelled(view, "flink") for view in self.views]

    def totals(self, engine: str, cutoff_ms: int) -> tuple[str, str]:
        """Return the count and the checksum of the result as SQL."""
        modulo = "mod({}, CAST({} AS BIGINT))" if engine == "flink" else "({}) % {}"
        each = checksum(*self.part, modulo=modulo)
        if not self.windowed:
            return "count(*)", f"sum({each})"
        closed = f"start_ms < {cutoff_ms}"
        return f"sum(CASE WHEN {closed} THEN 1 ELSE 0 END)", f"sum(CASE WHEN {closed} THEN {each} ELSE 0 END)"


def _spelled(text: str, dialect: str) -> str:
    for name, words in _MS[dialect].items():
        text = text.replace("{" + name + "}", words)
    if dialect == "flink":  # a word of its own there
        text = re.sub(r"\bdateTime\b", "`dateTime`", text)
    return text.replace("{CAP}", CAP)


def _marked(text: str) -> str:
    return re.sub(r"(FROM|JOIN) (auction|bid)\b", r"\1 \2_marked", text)


def _alike(title: str, streams: tuple[str, ...], part: tuple[str, str, str], text: str) -> Query:
    return Query(title, streams, part, text, text, text)


_WON = """FROM auction A JOIN bid B ON A.id = B.auction
    AND B.dateTime BETWEEN A.dateTime AND A.dateTime + {CAP} AND B.dateTime <= A.expires"""
_AUCTION = "A.itemName, A.description, A.initialBid, A.reserve, A.seller, A.category, A.extra AS auction_extra"

Q3 = _alike(
    "who sells in three states in one category",
    ("person", "auction"),
    ("id", "(char_length(name) + 17 * char_length(city))", "id * 31 + char_length(name)"),
    """SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
    AND P.dateTime BETWEEN A.dateTime - {CAP} AND A.dateTime + {CAP}
    WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
)

Q4 = Query(
    "mean winning price by category, of the auctions opened in 10 s",
    ("auction", "bid"),
    ("final", "category", "start_ms * 7 + category * 31"),
    windowed=True,
    spark="""SELECT unix_millis(w.start) AS start_ms, category, CAST(avg(final) AS BIGINT) AS final FROM (
        SELECT window(A.dateTime, '10 seconds') AS w, A.id, A.category, max(B.price) AS final
    """ + _WON + """
        GROUP BY window(A.dateTime, '10 seconds'), A.id, A.category) GROUP BY w, category""",
    views=("CREATE TEMPORARY VIEW won AS SELECT A.id, A.category, B.price, A.dateTime " + _WON,),
    flink=f"""SELECT {_FLINK_START} AS start_ms, category, avg(final) AS final FROM (
        SELECT window_start, window_end, id, category, max(price) AS final
        FROM TABLE(TUMBLE(TABLE won, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, id, category) GROUP BY window_start, window_end, category""",
    duckdb="""SELECT start_ms, category, sum(final)::bigint // count(*) AS final FROM (
        SELECT {A} // 10000 * 10000 AS start_ms, A.id, A.category, max(B.price) AS final """ + _WON + """
        GROUP BY ALL) GROUP BY ALL""",
)  # fmt: skip

_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_SLIDING = "window(dateTime, '10 seconds', '2 seconds')"
_COUNTED = f"SELECT {_SLIDING} AS w, auction, count(*) AS num FROM bid GROUP BY {_SLIDING}, auction"
_MOST_BIDS = f"""SELECT unix_millis(b.w.start) AS start_ms, b.auction, b.num FROM ({_COUNTED}) b
    JOIN (SELECT w, max(num) AS most FROM ({_COUNTED}) GROUP BY w) m ON b.w = m.w AND b.num >= m.most"""
Q5 = Query(
    "auctions with the most bids in 10 s, every 2 s",
    ("bid",),
    ("auction", "num", "start_ms * 7 + num * 31"),
    windowed=True,
    spark=_MOST_BIDS,
    braided=_marked(_MOST_BIDS),
    flink=f"""SELECT {_FLINK_START.replace("window_start", "b.window_start")} AS start_ms, b.auction, b.num FROM (
        SELECT auction, count(*) AS num, window_start, window_end FROM {_HOP} GROUP BY auction, window_start, window_end
        ) b JOIN (SELECT max(num) AS most, window_start, window_end FROM (
            SELECT count(*) AS num, window_start, window_end FROM {_HOP} GROUP BY auction, window_start, window_end)
            GROUP BY window_start, window_end
        ) m ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.num >= m.most""",
    duckdb="""SELECT start_ms, auction, num FROM (SELECT *, max(num) OVER (PARTITION BY start_ms) AS most FROM (
        SELECT start_ms, auction, count(*) AS num FROM (
            SELECT unnest([({B} // 2000 - i) * 2000 for i in range(5)]) AS start_ms, auction FROM bid B)
        GROUP BY ALL)) WHERE num >= most""",
)

_MOST = """SELECT most, window_time(w) AS closing FROM (
    SELECT max(price) AS most, window(dateTime, '10 seconds') AS w FROM bid GROUP BY window(dateTime, '10 seconds'))"""
_HIGHEST = """SELECT {} B.auction, B.price, B.bidder, {{B}} AS bid_ms, B.extra, {{B}} - {{B}} % 10000 AS start_ms
    FROM bid B JOIN ({}) M
    ON B.price = M.most AND B.dateTime > M.closing - INTERVAL '10' SECOND AND B.dateTime <= M.closing"""
Q7 = Query(
    "highest bids of every 10 s",
    ("bid",),
    ("price", "bidder", "auction * 31 + start_ms * 7 + bid_ms * 13 + char_length(extra)"),
    windowed=True,
    spark=_HIGHEST.format("", _MOST),
    braided=_HIGHEST.format(f"/*+ BRAIDED('m', {_IN_ANY_ORDER}) */", _marked(_MOST)),
    flink="""SELECT B.auction, B.price, B.bidder, {B} AS bid_ms, B.extra,
        {B} - mod({B}, CAST(10000 AS BIGINT)) AS start_ms FROM bid B
        JOIN (SELECT max(price) AS most, window_time AS closing
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end, window_time) M
        ON B.price = M.most AND B.dateTime > M.closing - INTERVAL '10' SECOND AND B.dateTime <= M.closing""",
    duckdb="""SELECT auction, price, bidder, {B} AS bid_ms, extra, {B} // 10000 * 10000 AS start_ms FROM bid B
        QUALIFY price = max(price) OVER (PARTITION BY start_ms)""",
)

_TUMBLED = """SELECT {0}, window_start, window_end
    FROM TABLE(TUMBLE(TABLE {1}, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY {0}, window_start, window_end"""
Q8 = Query(
    "persons who sold within the 10 s in which they came",
    ("person", "auction"),
    ("id", "char_length(name)", "id * 31 + start_ms * 7"),
    windowed=True,
    spark="""SELECT P.id, P.name, unix_millis(P.w.start) AS start_ms
        FROM (SELECT id, name, window AS w FROM person GROUP BY window(dateTime, '10 seconds'), id, name) P
        JOIN (SELECT seller, window AS w FROM auction GROUP BY window(dateTime, '10 seconds'), seller) A
        ON P.id = A.seller AND P.w = A.w""",
    braided="""SELECT P.id, P.name, unix_millis(window.start) AS start_ms
        FROM (SELECT id, name, dateTime, unix_millis(dateTime) DIV 10000 AS slot FROM person) P
        JOIN (SELECT seller, dateTime, unix_millis(dateTime) DIV 10000 AS slot FROM auction) A
        ON P.id = A.seller AND P.slot = A.slot AND A.dateTime BETWEEN P.dateTime - {CAP} AND P.dateTime + {CAP}
        GROUP BY window(P.dateTime, '10 seconds'), P.id, P.name HAVING count(*) > 0""",
    flink=f"""SELECT P.id, P.name, {_FLINK_START.replace("window_start", "P.window_start")} AS start_ms
        FROM ({_TUMBLED.format("id, name", "person")}) P JOIN ({_TUMBLED.format("seller", "auction")}) A
        ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end""",
    duckdb="""SELECT DISTINCT P.id, P.name, epoch_ms(P.dateTime) // 10000 * 10000 AS start_ms
        FROM person P JOIN auction A ON P.id = A.seller AND epoch_ms(P.dateTime) // 10000 = {A} // 10000""",
)

_WINNER = (
    *("itemName", "description", "initialBid", "reserve", "seller", "category", "auction_extra"),
    *("expires_ms", "bidder", "price", "bid_ms", "bid_extra"),
)
_BEST = f"""SELECT id, {", ".join(f"best.{name}" for name in _WINNER)}, unix_millis(w.start) AS start_ms FROM (
    SELECT window(A.dateTime, '10 seconds') AS w, A.id, max_by(
        struct({_AUCTION}, {{E}} AS expires_ms, B.bidder, B.price, {{B}} AS bid_ms, B.extra AS bid_extra),
        struct(B.price, -{{B}}, -B.bidder)) AS best
    {_WON} GROUP BY window(A.dateTime, '10 seconds'), A.id)"""
Q9 = Query(
    "the winning bid of every auction",
    ("auction", "bid"),
    ("price", "id", "bidder * 31 + bid_ms * 7 + expires_ms * 13 + seller + char_length(auction_extra)"),
    windowed=True,
    spark=_BEST,
    braided=_marked(_BEST),
    views=(
        f"""CREATE TEMPORARY VIEW won AS SELECT A.id, {_AUCTION}, {{E}} AS expires_ms, B.bidder, B.price,
        {{B}} AS bid_ms, B.extra AS bid_extra, A.dateTime """ + _WON,
    ),
    flink=f"""SELECT id, {", ".join(_WINNER)}, {_FLINK_START} AS start_ms FROM (SELECT *, ROW_NUMBER() OVER (
            PARTITION BY window_start, window_end, id ORDER BY price DESC, bid_ms ASC, bidder ASC) AS place
            FROM TABLE(TUMBLE(TABLE won, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))) WHERE place <= 1""",
    duckdb=f"""SELECT A.id, {_AUCTION}, {{E}} AS expires_ms, B.bidder, B.price, {{B}} AS bid_ms, B.extra AS bid_extra,
        {{A}} // 10000 * 10000 AS start_ms """ + _WON + """
        QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime, B.bidder) = 1""",
)  # fmt: skip

Q20 = _alike(
    "bids with their auctions, of one category",
    ("auction", "bid"),
    ("price", "seller", "bidder * 31 + bid_ms * 7 + auction_ms * 13 + expires_ms + char_length(auction_extra)"),
    f"""SELECT B.auction, B.bidder, B.price, B.channel, B.url, {{B}} AS bid_ms, B.extra AS bid_extra, {_AUCTION},
    {{A}} AS auction_ms, {{E}} AS expires_ms
    FROM bid B JOIN auction A ON B.auction = A.id AND B.dateTime BETWEEN A.dateTime - {{CAP}} AND A.dateTime + {{CAP}}
    WHERE A.category = 10""",
)

_THREE = f"""SELECT B.bidder, B.price, B.channel, B.url, B.extra AS bid_extra, P.id AS person_id, P.name,
    P.emailAddress, P.creditCard, P.city, P.state, P.extra AS person_extra, {_AUCTION},
    {{A}} AS auction_ms, {{E}} AS expires_ms
    FROM bid B JOIN person P ON P.id = B.bidder AND P.dateTime BETWEEN B.dateTime - {{CAP}} AND B.dateTime + {{CAP}}
    JOIN auction A ON A.seller = B.bidder AND A.dateTime BETWEEN B.dateTime - {{CAP}} AND B.dateTime + {{CAP}}
        AND A.dateTime BETWEEN P.dateTime - {{CAP}} AND P.dateTime + {{CAP}}"""
Q23 = Query(
    "bids of persons who sell too, with person and auction",
    ("person", "auction", "bid"),
    ("price", "reserve", "bidder * 31 + auction_ms * 13 + char_length(name) + char_length(bid_extra)"),
    # Spark takes no stream with two columns of event time: that of the person goes on as a number.
    spark=f"""SELECT X.*, {_AUCTION}, {{A}} AS auction_ms, {{E}} AS expires_ms FROM (
        SELECT B.bidder, B.price, B.channel, B.url, B.extra AS bid_extra, B.dateTime, P.id AS person_id, P.name,
            P.emailAddress, P.creditCard, P.city, P.state, P.extra AS person_extra, unix_millis(P.dateTime) AS person_ms
        FROM bid B JOIN person P ON P.id = B.bidder AND P.dateTime BETWEEN B.dateTime - {{CAP}} AND B.dateTime + {{CAP}}
        ) X JOIN auction A ON A.seller = X.bidder AND A.dateTime BETWEEN X.dateTime - {{CAP}} AND X.dateTime + {{CAP}}
        AND {{A}} BETWEEN X.person_ms - 10000 AND X.person_ms + 10000""",
    braided=_THREE,
    flink=_THREE,
    duckdb=_THREE,
)

QUERIES = {"q3": Q3, "q4": Q4, "q5": Q5, "q7": Q7, "q8": Q8, "q9": Q9, "q20": Q20, "q23": Q23}
