"""Forecasts on the page, in a real browser: what a change would do, when a task starts, what would start it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from taskmill import Group, RateLimit
from taskmill.web.pages import changes
from tests.web.browser import Open, Site, fill, replicate, started, upload, watch
from tests.web.browser_probes import CONTRASTS, NAMELESS, TOO_WIDE

EVIL = '<img src=x onerror="window.pwned=1">'


def _changing(page: Page, group: str) -> Locator:
    """Open the dialog that changes a group, and wait for its shares and its first comparison."""
    page.get_by_role("button", name=f"Change {group}", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".preview")).to_be_visible()
    _compared(dialog)
    return dialog


def _compared(dialog: Locator) -> None:
    expect(dialog.locator(".what-if[aria-busy=false]")).to_be_visible()


def _row(dialog: Locator, name: str) -> list[str]:
    """Return the cells of a row of the comparison: now and then."""
    row = dialog.locator(".then-table").get_by_role("row", name=f"{name} ")
    return [text.split("9 of 10")[0].strip() for text in row.locator("td").all_inner_texts()]


def _queue(site: Site) -> None:
    """Let all slots be taken, and eight tasks wait in ``backup``; no run of a task has ended, so each takes 1 s."""
    site.do(site.scheduler.submit_many(watch.options(group="photos").prepare(f"folder{n}") for n in range(2)))
    site.do(started(site, 2))
    site.do(site.scheduler.submit_many(upload.options(group="backup").prepare(f"{n}.jpg") for n in range(8)))


# Groups


def test_a_change_shows_the_waits_now_and_then_before_it_is_applied(site: Site, look: Open) -> None:
    _queue(site)
    page = look().open(site, "groups")
    dialog = _changing(page, "backup")
    now, then = _row(dialog, "backup")
    assert now == then
    dialog.get_by_label("Cap").fill("1")
    expect(dialog.locator(".then-table .chosen .new")).to_be_visible()
    _compared(dialog)
    now, then = _row(dialog, "backup")
    assert _seconds(then) > _seconds(now), "with a cap of one its tasks wait longer"
    assert _row(dialog, "Deadlines missed") == ["0", "0"]
    more, fewer = (float(text.split()[0]) for text in _row(dialog, "Slots used"))
    assert more > fewer
    expect(dialog.locator(".what-if")).to_contain_text("No run of sync::upload")
    assert site.do(site.scheduler.snapshot()).groups["backup"].cap is None
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_have_count(0)
    assert site.do(site.scheduler.snapshot()).groups["backup"].cap == 1


def _seconds(text: str) -> float:
    amount, unit = text.split()[:2]
    return float(amount) / (1000 if unit == "ms" else 1)


def test_deadlines_that_a_change_would_miss_are_counted(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", max_concurrency=4, groups={"backup": Group(weight=1)}) as site:
        site.do(site.scheduler.submit_many(watch.options(group="photos").prepare(f"folder{n}") for n in range(4)))
        site.do(started(site, 4))
        site.do(site.scheduler.submit_many(upload.options(group="backup", ttl=60).prepare(f"{n}") for n in range(200)))
        dialog = _changing(look().open(site, "groups"), "backup")
        dialog.get_by_label("Cap").fill("1")
        expect(dialog.locator(".then-table .chosen .new")).to_be_visible()
        now, then = _row(dialog, "Deadlines missed")
        assert int(now) < int(then)


def test_one_comparison_is_asked_for_at_a_time_and_the_last_settings_are_shown(site: Site, look: Open) -> None:
    _queue(site)
    one = look()
    one.page.clock.install()
    page = one.open(site, "groups")
    held: list[Route] = []
    page.route("**/api/simulate", lambda route: held.append(route))  # noqa: PLW0108 - needs a function
    with page.expect_request("**/api/simulate"):
        page.get_by_role("button", name="Change backup", exact=True).click()
    dialog = page.get_by_role("dialog")
    for weight in ("2", "3", "4"):
        dialog.get_by_label("Weight").fill(weight)
        page.clock.fast_forward(5000)
    expect(dialog.locator(".preview .chosen")).to_be_visible()
    assert len(held) == 1, "the first one is not answered yet"
    with page.expect_request("**/api/simulate") as last:
        held[0].continue_()
    assert '"weight":4,' in str(last.value.post_data)
    expect(dialog.locator(".what-if[aria-busy=true]")).to_be_visible()
    held[1].continue_()
    _compared(dialog)
    assert len(held) == 2


def test_a_queue_that_is_too_large_is_said_in_words(site: Site, look: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_SIMULATED", 5)
    _queue(site)
    one = look()
    one.expected_statuses = {409}
    dialog = _changing(one.open(site, "groups"), "backup")
    expect(dialog.locator(".what-if")).to_contain_text("10 tasks are active, and the page compares at most 5")
    expect(dialog.locator(".what-if")).to_contain_text("taskmill simulate")
    expect(dialog.locator(".preview .chosen")).to_be_visible()
    dialog.get_by_label("Cap").fill("1")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_have_count(0)


def test_without_waiting_tasks_there_is_nothing_to_compare(site: Site, look: Open) -> None:
    site.do(watch.options(group="photos").submit("x"))
    site.do(started(site, 1))
    dialog = _changing(look().open(site, "groups"), "photos")
    expect(dialog.locator(".what-if")).to_contain_text("No task waits")


def test_a_reader_tries_settings_and_cannot_apply_them(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", read_only=True, max_concurrency=2) as site:
        _queue(site)
        page = look().open(site, "groups")
        page.get_by_role("button", name="Try settings of backup").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Cap").fill("1")
        expect(dialog.locator(".then-table .chosen .new")).to_be_visible()
        expect(dialog.get_by_role("button")).to_have_text(["Close"])
        dialog.get_by_label("Cap").press("Enter")
        assert site.do(site.scheduler.snapshot()).groups["backup"].cap is None


WINDOWS: tuple[tuple[int, Literal["light", "dark"]], ...] = (
    (360, "dark"),
    (1280, "light"),
    (1280, "dark"),
    (360, "light"),
)


@pytest.mark.timeout(300)
def test_the_comparison_fits_is_readable_and_does_not_move_when_it_is_renewed(site: Site, look: Open) -> None:
    _queue(site)
    for name in ("x" * 200, "写真" * 60, EVIL):
        site.do(upload.options(group=name).submit(name))
    page = look().open(site, "groups")
    for width, scheme in WINDOWS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        dialog = _changing(page, "backup")
        before = page.evaluate(TABLE_PLACE)
        dialog.get_by_label("Weight").fill("7")
        expect(dialog.locator(".what-if[aria-busy=true]")).to_be_visible()
        assert page.evaluate(TABLE_PLACE) == before
        _compared(dialog)
        assert page.evaluate(TABLE_PLACE) == before
        assert page.evaluate(TOO_WIDE) == []
        assert page.evaluate(
            "() => { const d = document.querySelector('dialog'); return d.scrollWidth <= d.clientWidth; }"
        )
        assert page.evaluate(CONTRASTS) == []
        assert page.evaluate(NAMELESS) == []
        expect(dialog.locator(".then-table")).to_contain_text(EVIL)
        assert page.locator("dialog img").count() == 0
        assert page.evaluate("() => window.pwned") is None
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


TABLE_PLACE = """() => {
    const { x, y, height } = document.querySelector(".then-table").getBoundingClientRect();
    return [x, y, height].map(Math.round);
}"""


# One task


def test_a_waiting_task_says_when_it_starts_and_how_sure_that_is(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", max_concurrency=2) as site:
        site.do(site.do(upload.submit("done")).result())
        for n in range(4):
            site.do(site.do(watch.options(timeout=0.1 + n / 10).submit(f"{n}")).wait())
        site.do(site.scheduler.submit_many(watch.options(timeout=3600).prepare(f"long{n}") for n in range(2)))
        site.do(started(site, 2))
        waits = site.do(watch.submit("waits"))
        later = site.do(upload.options(run_after=3600).submit("later"))
        one = look()
        page = one.open(site, f"task/{waits.id}")
        figure = page.locator(".why-figures .figure").first
        expect(figure).to_contain_text("expected start")
        expect(figure).to_contain_text("simulations")
        one.show(f"task/{later.id}")
        expect(page.locator(".why-figures .figure").first).to_contain_text("its due time")


def test_a_remedy_is_applied_after_a_question_and_logged(
    site: Site, look: Open, caplog: pytest.LogCaptureFixture
) -> None:
    site.do(site.scheduler.group("backup").pause())
    held = site.do(upload.options(group="backup").submit("held.jpg"))
    page = look().open(site, f"task/{held.id}")
    helps = page.get_by_role("region", name="What would help")
    expect(helps).to_contain_text("Resume group 'backup'.")
    expect(page.locator(".why-summary")).not_to_contain_text("It would start now with")
    helps.get_by_role("button", name="Apply").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Resume group 'backup'.")
    assert site.do(site.scheduler.snapshot()).paused_groups == ["backup"]
    with caplog.at_level(logging.INFO, "taskmill.audit"):
        dialog.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("The change was made.")).to_be_visible()
    assert any('apply {} {"resume":{"groups":["backup"]}}: done' in text for text in caplog.messages)
    site.do(held.result())
    expect(page.get_by_role("region", name="How it ended")).to_be_visible()


def test_a_task_that_would_miss_its_deadline_is_saved_by_a_remedy(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", groups={"api": Group(rate=RateLimit(1, 3600))}) as site:
        site.do(site.do(upload.submit("done")).result())
        uploads = [upload.options(group="api").prepare(f"{n}") for n in range(2)]
        *_, last = site.do(
            site.scheduler.submit_many([*uploads, upload.options(group="api", ttl=5400).prepare("last")])
        )
        page = look(viewport={"width": 360, "height": 740}).open(site, f"task/{last.id}")
        expect(page.locator(".why-summary")).to_contain_text("Expected to expire before it starts.")
        expect(page.locator(".why-summary")).not_to_contain_text("It would start")
        expect(page.locator(".why-figures .figure").first).to_contain_text("too late")
        helps = page.get_by_role("region", name="What would help").get_by_role("listitem")
        expect(helps).to_have_count(2)
        expect(helps.first).to_contain_text("No rate limit for group 'api'.With this it would start now,")
        faster = "Rate limit of group 'api' from 1 per hour to 2 per hour."
        expect(helps.last).to_contain_text(f"{faster}With this it would start later, but before its deadline")
        assert page.evaluate(TOO_WIDE) == []
        helps.last.get_by_role("button", name="Apply").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply").click()
        expect(page.locator(".why-figures .figure").first).to_contain_text("expected start")
        expect(page.locator(".why-figures .figure").first).not_to_contain_text("too late")
        (rate,) = site.do(site.scheduler.snapshot()).rates
        assert rate.rate == RateLimit(2, 3600, burst=1)


def test_a_page_that_does_not_dispatch_says_where_slots_are_changed(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", max_concurrency=2) as site:
        _queue(site)
        waits = site.do(upload.submit("waits"))
        with Site(tmp_path / "tasks.db", dispatches=False, domains=()) as other:
            page = look().open(other, f"task/{waits.id}")
            helps = page.get_by_role("region", name="What would help")
            expect(helps).to_contain_text("scheduler.set_max_concurrency(")
            expect(helps.get_by_role("button")).to_have_count(0)
        page = look().open(site, f"task/{waits.id}")
        page.get_by_role("region", name="What would help").get_by_role("button", name="Apply").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply").click()
        site.do(waits.result())


def test_a_reader_sees_what_would_help_without_a_button(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", read_only=True) as site:
        site.do(site.scheduler.group(EVIL).pause())
        held = site.do(upload.options(group=EVIL).submit("held.jpg"))
        page = look(viewport={"width": 360, "height": 740}).open(site, f"task/{held.id}")
        helps = page.get_by_role("region", name="What would help")
        expect(helps).to_contain_text(EVIL)
        expect(helps.get_by_role("button")).to_have_count(0)
        assert page.locator("main img").count() == 0
        assert page.evaluate(TOO_WIDE) == []


# Errors


def test_the_number_of_tasks_to_retry_comes_from_the_server(site: Site, look: Open) -> None:
    first = site.do(replicate.submit("first"))
    site.do(first.wait())
    site.do(site.scheduler.retry_dead(first.id))
    site.do(first.wait())
    ids = fill(site)
    page = look().open(site, "errors")
    page.get_by_role("button", name="Retry ConnectionError of sync::replicate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 attempts failed in this way")
    expect(dialog.locator(".bulk-count")).to_contain_text("2 tasks")
    assert site.do(site.scheduler.count(status="dead_letter", type="sync::replicate")) == 2
    dialog.get_by_role("button", name="Retry tasks").click()
    expect(page.get_by_text("2 tasks returned to the queue.")).to_be_visible()
    assert site.do(site.scheduler.get(ids["lost"])).state == "pending"
