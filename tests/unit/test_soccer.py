"""The soccer example: it finds what is known to have happened, its detectors pass the check, and its pictures are drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from braided.testing import check_detector

FOLDER = Path(__file__).parents[2] / "examples" / "soccer"


@pytest.fixture(scope="module")
def soccer() -> Any:
    """The modules of the example, which are scripts beside each other."""
    names = ("detectors", "match", "pictures", "figure", "run")
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(FOLDER))
    try:
        import run

        yield run
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)
            if before[name] is not None:
                sys.modules[name] = before[name]  # type: ignore[assignment]


def test_passes_and_shots_are_found_however_late_positions_are(soccer: Any) -> None:
    streams, truth = soccer.generate(240, seed=3)
    assert len(truth.passes) > 40
    assert truth.double_passes
    assert truth.shots
    results = [soccer.detect(streams, late) for late in (soccer.PAPER, soccer.WORSE)]
    for result in results:
        assert sum(one["late"] for one in result.report.query["detectors"]) == 0
        for type_, (precision, recall) in soccer.quality(result.table, truth).items():
            assert precision > 0.95, type_
            assert recall > 0.95, type_
    by_time = [result.table.sort_by([("type", "ascending"), ("time", "ascending")]) for result in results]
    kinds = [pc.value_counts(table["type"]).to_pylist() for table in by_time]
    assert kinds[0] == kinds[1]


@pytest.mark.long
@pytest.mark.slow
def test_its_detectors_pass_the_check(soccer: Any) -> None:
    streams, _ = soccer.generate(24, seed=3)
    found = soccer.detect(streams, soccer.PAPER).table
    known = dict(streams)
    for type_ in ("near", "not_near", "acceleration", "hit", "pass"):
        known[type_] = pa.Table.from_struct_array(found.filter(pc.equal(found["type"], type_))[type_])
    known = {
        name: rows.filter(pc.less(rows["time"], pa.scalar(12_000_000, pa.timestamp("us"))))
        for name, rows in known.items()
    }
    for detector in soccer.hierarchy():
        types = [detector.subscribes] if isinstance(detector.subscribes, str) else detector.subscribes
        events = {name: known[name] for name in types}
        assert all(rows.num_rows for rows in events.values()), types
        events = {
            name: rows.drop_columns(["match"]) if "match" in rows.column_names else rows
            for name, rows in events.items()
        }
        check_detector(detector, events, tries=1)


@pytest.mark.long
def test_all_of_it_runs_small(soccer: Any, tmp_path: Path, capsys: Any) -> None:
    streams, _ = soccer.generate(20, seed=1)
    recorded = pa.concat_tables([rows.drop_columns(["match"]) for rows in streams.values()]).sort_by("time")
    pq.write_table(recorded, tmp_path / "match.parquet")
    soccer.figure(12, tmp_path, hz=50, tick_ms=100)
    said = capsys.readouterr().out.splitlines()
    learned, chosen = said[2].split(), said[4].split()
    assert learned[:3] == ["learned,", "margin", "0"]
    assert float(learned[-3]) < float(chosen[-3]), "a learned K detects earlier than one of 500 ms"
    assert ElementTree.parse(tmp_path / "figure_5a.svg").getroot().tag.endswith("svg")
    result = soccer.detect(soccer.read_match(str(tmp_path / "match.parquet")), soccer.PAPER)
    picture = ElementTree.fromstring(soccer.draw(result.table, streams))
    arrows = [path for path in picture.iter() if path.get("marker-end")]
    assert len(arrows) == len(soccer.events(result.table, "pass")) > 1
