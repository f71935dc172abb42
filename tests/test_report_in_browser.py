"""The page of a report in Chromium: clicks, keys, colors, and no network."""

from __future__ import annotations

import itertools
import re
import shutil

import pytest
from report_pages import write_page
from verdicts import HAS_LIBTPU, needs_libtpu, own_cache  # noqa: F401

pytest.importorskip("jinja2")
api = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# Of WCAG 2, level AA: of text, and of what is no text but says something.
TEXT, GRAPHICS = 4.5, 3.0
CONTRAST = """
([selector, property]) => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = channels(color).map((c) => {
      c /= 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = getComputedStyle(each).backgroundColor;
      const [, , , alpha = 1] = channels(color);
      if (alpha === 1 && (each !== element || property === "color")) return color;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll(selector)]
    .filter((element) => element.checkVisibility())
    .filter((element) => property !== "color" || [...element.childNodes].some(
      (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim()))
    .map((element) => {
      const pair = [light(getComputedStyle(element)[property]), light(behind(element))];
      const [low, high] = pair.sort((a, b) => a - b);
      return [(high + 0.05) / (low + 0.05), element.outerHTML.slice(0, 100)];
    });
}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    target = ["v2:1x1"] if HAS_LIBTPU else []
    write_page(path, 2, *target)
    return path


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root, as in containers.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def color_scheme():
    """Only the style sheet has two of them."""
    return "light"


@pytest.fixture
def page(color_scheme, browser, report):
    """The page, opened; the test fails if a script does, or if anything is fetched."""
    context = browser.new_context(
        color_scheme=color_scheme, viewport={"width": 1200, "height": 900}
    )
    opened = context.new_page()
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    opened.on(
        "request",
        lambda asked: (
            None if asked.url.startswith(("file:", "data:")) else problems.append(asked.url)
        ),
    )
    opened.goto(report.as_uri())
    yield opened
    context.close()
    assert problems == []


def shown(page):
    """Returns from when to when the timeline is."""
    label = page.locator("#timeline-chart svg[role=img]").get_attribute("aria-label")
    return [float(number) for number in re.search(r"from (\S+) to (\S+) ms", label).groups()]


def test_buttons_move_the_timeline(page):
    whole = shown(page)
    page.get_by_role("button", name="Zoom in").click()
    zoomed = shown(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    page.get_by_role("button", name="Later").click()
    assert shown(page)[0] > zoomed[0]
    page.get_by_role("button", name="Earlier").click()
    assert shown(page) == pytest.approx(zoomed, rel=0.01)
    page.get_by_role("button", name="Show all").click()
    assert shown(page) == whole


def test_keys_move_the_timeline(page):
    whole = shown(page)
    page.locator("#timeline-chart").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    zoomed = shown(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 4, rel=0.01)
    page.keyboard.press("ArrowRight")
    assert shown(page)[0] > zoomed[0]
    page.keyboard.press("Home")
    assert shown(page) == whole
    # At the ends it stays.
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("-")
    assert shown(page) == whole


def test_a_step_is_chosen_and_a_bar_picked(page):
    whole = shown(page)
    options = page.locator("#step option").all_text_contents()
    step = next(number for number, text in enumerate(options) if "train_step" in text)
    page.locator("#step").select_option(index=step)
    begin, end = shown(page)
    assert end - begin < (whole[1] - whole[0]) / 2
    status = page.get_by_role("status")
    assert f"Step {step}, train_step" in status.text_content()
    bar = page.locator("#timeline-chart .bars-run rect").first
    bar.click(position={"x": 1, "y": 2})
    assert re.match(r"Running, core \d: train_step, step \d+", status.text_content())
    assert page.locator("#timeline-chart rect.picked").count() == 1


def test_every_kind_of_bar_is_drawn(page):
    for kind in ("compile", "run", "update"):
        assert page.locator(f"#timeline-chart .bars-{kind} rect").count() > 0, kind


@pytest.mark.parametrize("chart", ["compilations", "memory", "padding", "collectives"])
def test_charts_have_bars(page, chart):
    assert page.locator(f"#{chart}-chart svg g[aria-label=bar] rect").count() > 0


@needs_libtpu
def test_answers_of_the_compiler(page):
    assert page.locator("#target-chart svg g[aria-label=bar] rect").count() > 0
    table = page.locator("#target-table")
    table.get_by_role("button", name="Memory").click()
    memory = [
        float(cell.get_attribute("data-value"))
        for cell in table.locator("tbody td:nth-child(4)").all()
    ]
    assert memory == sorted(memory, reverse=True)
    # What is wrong is open, the rest is a click away.
    refused = page.locator("article.program.refused")
    assert refused.get_by_text("Unexpected operand type for FFT").is_visible()
    table.get_by_role("link", name="train_step").first.click()
    program = page.locator(page.evaluate("location.hash"))
    assert page.evaluate("document.activeElement.id") == program.get_attribute("id")
    assert not program.get_by_text("temporaries", exact=True).is_visible()
    program.locator("summary").focus()
    page.keyboard.press("Enter")
    assert program.get_by_text("temporaries", exact=True).is_visible()
    assert program.get_by_text("host call in a loop").is_visible()


def test_columns_are_sorted(page):
    table = page.locator("#compilations-table")

    def times():
        cells = table.locator("tbody td:nth-child(5)").all()
        return [float(cell.get_attribute("data-value")) for cell in cells]

    in_order = times()
    button = table.get_by_role("button", name="Took")
    button.click()
    assert times() == sorted(in_order, reverse=True)
    header = table.get_by_role("columnheader", name="Took")
    assert header.get_attribute("aria-sort") == "descending"
    # By the keyboard.
    button.focus()
    page.keyboard.press("Enter")
    assert times() == sorted(in_order)
    assert header.get_attribute("aria-sort") == "ascending"
    table.get_by_role("button", name="Function and line").click()
    names = table.locator("tbody td:nth-child(2) strong").all_text_contents()
    assert names == sorted(names)
    assert header.get_attribute("aria-sort") is None


def test_the_keyboard_reaches_everything(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    wanted = page.locator("main button, main select, main summary, main [tabindex='0']")
    visible = [each for each in wanted.all() if each.is_visible()]
    reached = set()
    for _ in range(5 * len(visible)):
        page.keyboard.press("Tab")
        place = "[...document.querySelectorAll('*')].indexOf(document.activeElement)"
        reached.add(page.evaluate(place))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        if page.evaluate("document.activeElement.matches('main *')"):
            assert outline == "solid", page.evaluate("document.activeElement.outerHTML")
    for each in visible:
        place = each.evaluate("(e) => [...document.querySelectorAll('*')].indexOf(e)")
        assert place in reached, each.evaluate("(e) => e.outerHTML")


def test_links_lead_to_sections(page):
    for link in page.get_by_role("navigation").get_by_role("link").all():
        link.click()
        target = page.locator(link.get_attribute("href"))
        # Below the bar that stays at the top.
        bar = page.get_by_role("navigation").bounding_box()
        assert bar["y"] == 0 or page.evaluate("scrollY") < 100
        assert target.bounding_box()["y"] >= bar["y"] + bar["height"] - 30


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_contrast(page):
    texts = (
        "h1, h2, h3, p, a, td, th, li, code, del, ins, caption, figcaption, summary, button, span"
    )
    for ratio, what in page.evaluate(CONTRAST, [texts, "color"]):
        assert ratio >= TEXT, what
    for ratio, what in page.evaluate(CONTRAST, [".swatch", "backgroundColor"]):
        assert ratio >= GRAPHICS, what
    for ratio, what in page.evaluate(CONTRAST, ["#timeline-chart svg rect", "fill"]):
        assert ratio >= GRAPHICS, what


def test_names_of_what_assistive_technology_reads(page):
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.get_by_role("main").count() == 1
    for role in ("button", "combobox", "region", "table", "img"):
        for each in page.get_by_role(role).all():
            name = each.evaluate(
                "(e) => e.ariaLabel || e.innerText || (e.labels && e.labels[0]?.innerText) || "
                "(e.caption && e.caption.innerText)"
            )
            assert name, each.evaluate("(e) => e.outerHTML.slice(0, 200)")
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_narrow_windows(page):
    page.set_viewport_size({"width": 360, "height": 700})
    page.wait_for_timeout(300)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360


def test_without_scripts(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert not page.locator("#timeline-chart").is_visible()
    assert page.locator("#compilations-table tbody tr").count() > 3
    context.close()
