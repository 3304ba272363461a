"""The page in a real browser: a hot key appears, the decision is shown and the bars level out; by keyboard, dark and small.

Needs Debian's `chromium` and the packages of the group `browser`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.dashboards import HOT, batch_event, join_calls, run_events, write_calls

import braided
from braided.ui.dashboard_page import whole_page
from braided.ui.history import History
from braided.ui.history_summary import summarize, write_text
from braided.ui.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

playwright = pytest.importorskip("playwright.sync_api")
WAIT = 180_000
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def workers_4(spark: SparkSession) -> SparkSession:
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    return spark


def busiest(page: Any) -> float:
    label = page.locator("#bars").get_attribute("aria-label")
    return max(float(share) for share in re.findall(r": ([\d.]+) of the mean", label))


def wait_for_batch(page: Any, shown: str) -> None:
    playwright.expect(page.locator("#shown")).to_have_text(re.compile(f"^{shown}$"), timeout=WAIT)


def open_page(browser: Any, url: str, **options: Any) -> tuple[Any, list[str]]:
    page = browser.new_page(**options)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(url) else None)
    page.goto(url)
    return page, wrong


def test_a_join_adapts_before_one_s_eyes(workers_4: SparkSession, tmp_path: Path, browser: Any) -> None:
    spark = workers_4
    write_calls(tmp_path, batches=range(4), rows=4000, hot_from=4)
    with braided.dashboard(spark, history=tmp_path / "history") as dashboard:
        page, wrong = open_page(browser, dashboard.url)
        assert page.locator("#empty").is_visible()
        joined = join_calls(spark, tmp_path, name="hits")
        writer = joined.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.queryName("live").start()
        page.wait_for_selector("text=live runs", timeout=WAIT)
        wait_for_batch(page, r"3 \(newest\)")
        assert page.locator("#decisions").count() == 0
        assert busiest(page) < 1.3
        write_calls(tmp_path, batches=range(4, 12), rows=4000, hot_from=4)
        page.wait_for_selector(f"#keys >> text={HOT}", timeout=WAIT)
        page.wait_for_selector("#decisions >> text=promote", timeout=WAIT)
        wait_for_batch(page, r"11 \(newest\)")
        assert f"promote {HOT}" in page.locator("#decisions").inner_text()
        assert f"Hot key {HOT}: grid" in page.locator("#groups").inner_text()
        level = busiest(page)
        page.locator("#at").focus()
        for _ in range(6):
            page.keyboard.press("ArrowLeft")
        wait_for_batch(page, "5")
        assert busiest(page) > 1.3 * level
        page.locator("#newest").click()
        query.stop()
        page.wait_for_selector("text=live ended", timeout=20_000)
        page.wait_for_selector("#graph svg")
        assert "/s" in page.locator("#graph svg").get_attribute("aria-label")
        dashboard.save(tmp_path / "saved.html")
        assert wrong == []
    page.wait_for_selector("text=The connection is lost")
    page.close()

    for options in ({"color_scheme": "dark"}, {"viewport": {"width": 375, "height": 800}}):
        saved, wrong = open_page(browser, (tmp_path / "saved.html").as_uri(), **options)
        assert saved.locator("#decisions").is_visible()
        assert saved.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert wrong == []
        saved.close()


def fleet_event(load: float, *, peer: str = "north", name: str = "fraud") -> dict[str, Any]:
    job = {
        "name": name,
        "operator": "join.window",
        "peer": peer,
        "epoch": 3,
        "output": "/out",
        "load": load,
        "busy": 1.4,
        "backlog": 98_000,
        "rate": 52_000.0,
        "state": "behind",
        "since": 1_763_300_000_000,
    }
    peers = [
        {
            "name": one,
            "address": "127.0.0.1:7401",
            "load": load if one == peer else 0.05,
            "cores": 2,
            "loads": [0.1, load],
        }
        for one in ("north", "south")
    ]
    moved = {
        "time": 1_763_300_000_000,
        "peer": "north",
        "component": name,
        "what": f"moved to {peer}: it is a hot spot",
    }
    return {"event": "fleet", "peers": peers, "components": [job], "happened": [moved], "more": 0}  # fmt: skip


def test_a_long_first_batch_is_cut_long_keys_are_short_and_wide_tables_scroll(browser: Any, tmp_path: Path) -> None:
    events = [event for event in run_events(1) if event["event"] in ("started", "graph", "table")]
    for number in range(6):
        batch = batch_event(number, millis=9000 if number == 0 else 500)
        batch["sources"] = [{"name": "Kafka", "rows": 9, "lag": {"maxOffsetsBehindLatest": "1234"}}]
        batch["operators"][0]["keys"] = [{"key": "ab" * 8, "label": "k" * 200, "counts": [5, 1, 9]}]
        events.append(batch)
    events.append({"event": "ended", "query": "r", "time": 9000.0, "error": "ZeroDivisionError: the seventh call"})
    failing = fleet_event(0.5)
    failing["components"][0] |= {"state": "failing", "failures": 2, "problem": "no such file"}
    (tmp_path / "page.html").write_text(whole_page([*events, failing], ""), encoding="utf-8")
    page, wrong = open_page(browser, (tmp_path / "page.html").as_uri(), viewport={"width": 375, "height": 800})
    assert page.locator("#times .cut").text_content().endswith("9 s")
    assert page.locator("#lag").is_visible()
    assert "It failed: ZeroDivisionError" in page.locator("#facts").inner_text()
    key = page.locator("#keys tbody th span")
    assert len(key.inner_text()) == 40
    assert key.get_attribute("title") == "k" * 200
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    table = page.locator("#fleet .scroll")
    assert table.evaluate("(place) => place.scrollWidth > place.clientWidth")
    assert "failing (2 times), since 2025-11-16 13:33:20 UTC" in table.inner_text()
    assert "fraud failed: no such file" in page.locator("#fleet").inner_text()
    assert page.locator("#state").get_attribute("class") == "bad"
    assert wrong == []
    page.close()


def test_a_fleet_alone_is_shown_and_a_move_is_seen(browser: Any) -> None:
    history = History()
    server = Server(history)
    try:
        history.add(fleet_event(0.82))
        page, wrong = open_page(browser, server.url)
        page.wait_for_selector("text=A fleet of 2 peers")
        north, south = page.locator(".peer").all()
        assert "fraud, 52K rows/s, behind" in north.inner_text()
        assert "hosts nothing" in south.inner_text()
        assert "82% of 2 cores" in north.inner_text()
        assert "Load of north: 0.82" in (north.locator("svg[role=img]").get_attribute("aria-label") or "")
        history.add(fleet_event(0.4, peer="south"))
        playwright.expect(page.locator(".peer").nth(1)).to_contain_text("fraud", timeout=20_000)
        assert "moved to south: it is a hot spot" in page.locator("#fleet ol").inner_text()
        history.add({**fleet_event(0.4, peer="south"), "error": "no peer answers any more"})
        page.wait_for_selector("text=The fleet does not answer: no peer answers any more")
        assert wrong == []
        page.close()
    finally:
        server.close()


# The least contrast of any text with what is behind it, as the Web Content Accessibility Guidelines count it.
CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const part = (value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  let least = [99, ""];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.getClientRects().length || node.matches("option, script, style, .skip, :disabled")) continue;
    const style = getComputedStyle(node), color = parse(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(color), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) least = [ratio, node.textContent];
  }
  return least;
}"""
NAMELESS = """() => [...document.querySelectorAll("button, select, input, summary, [role=img]")]
  .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_everything_can_be_read_and_reached(tmp_path: Path, browser: Any, scheme: str, width: int) -> None:
    events = [*run_events(), fleet_event(0.82)]
    (tmp_path / "page.html").write_text(whole_page(events, ""))
    page, wrong = open_page(browser, (tmp_path / "page.html").as_uri(), color_scheme=scheme, viewport={"width": width, "height": 800})  # fmt: skip
    page.wait_for_selector("#fleet")
    ratio, text = page.evaluate(CONTRAST)
    assert ratio >= 4.5, text
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((node) => node.tagName).slice(0, 2)") == [
        "H1",
        "H2",
    ]
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"at", "SUMMARY", "BUTTON"} <= reached
    page.locator("#heat summary").focus()
    page.keyboard.press("Enter")
    page.locator("#heat table").wait_for()
    assert wrong == []
    page.close()


def test_what_is_shown_is_text(tmp_path: Path, browser: Any) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    events = [
        {"event": "started", "query": "r", "name": evil, "time": 0},
        {"event": "graph", "query": "r", "boxes": [{"title": evil, "kind": "spark", "lines": [evil], "x": 0, "y": 0, "width": 9, "height": 9, "operator": None}], "arrows": []},
        {"event": "batch", "query": "r", "batch": 1, "time": 0, "ms": {}, "sources": [{"name": evil, "rows": 3}], "operators": []},
        {"event": "decision", "query": "r", "operator": "o", "batch": 1, "action": evil, "reason": evil},
        {"event": "table", "query": "r", "operator": "o", "version": 1, "scheme": evil, "workers": 1, "in_use": [0], "owners": [0], "grids": []},
        {"event": "ended", "query": "r", "time": 1, "error": evil},
        fleet_event(0.5, peer=evil, name=evil),
    ]  # fmt: skip
    (tmp_path / "page.html").write_text(whole_page(events, write_text(summarize(events))))
    page, wrong = open_page(browser, (tmp_path / "page.html").as_uri())
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.wait_for_selector("#graph svg")
    assert evil in page.locator("#state").inner_text()
    assert page.locator("img").count() == 0
    assert wrong == []
    page.close()
