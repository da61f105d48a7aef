"""The page in a real browser: each view, live updates, filters, keys, actions, widths, colours, access."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect

import taskmill.web
from tests.web.browser import Open, Site, fill, restore, started, upload, watch, watch_both
from tests.web.browser_probes import BRIGHTNESS, BROKEN_FIGURES, CONTRASTS, NAMELESS, NO_POLLING, PLACES, TOO_WIDE

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
VIEWS = ("overview", "tasks", "groups", "schedules", "machine", "errors", "nodes", "system")

# Each view


def test_every_view_shows_an_empty_store_without_an_error(site: Site, look: Open) -> None:
    one = look()
    page = one.open(site)
    for view in VIEWS:
        one.show(view)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator("main")).not_to_contain_text("cannot be shown")


def test_every_view_shows_tasks_without_an_error(site: Site, look: Open) -> None:
    ids = fill(site)
    one = look()
    page = one.open(site)
    for view in (*VIEWS, *(f"task/{id}" for id in ids.values())):
        one.show(view)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator("main")).not_to_contain_text("cannot be shown")


def test_the_overview_counts_and_names_what_runs(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site)
    expect(page.locator(".state-tile[data-state=running] b")).to_have_text("2")
    expect(page.locator(".state-tile[data-state=pending] b")).to_have_text("5")
    expect(page.locator(".running-row").first).to_contain_text("folder-0")
    expect(page.locator(".running-row").first).to_contain_text("watching folder-0")
    expect(page.locator(".error-line")).to_have_count(2)


def test_a_waiting_task_says_why_it_waits_and_when_it_expires(site: Site, look: Open) -> None:
    ids = fill(site)
    page = look().open(site, f"task/{ids['waiting']}")
    why = page.get_by_role("region", name="Why it waits")
    expect(why.locator(".why-summary")).to_contain_text("slot")
    expect(why.locator(".holds li")).not_to_have_count(0)
    expect(why).to_contain_text("deadline to start")
    expect(why).to_contain_text("tasks ahead")


def test_a_failed_task_shows_its_error_and_its_payload(site: Site, look: Open) -> None:
    ids = fill(site)
    page = look().open(site, f"task/{ids['gone']}")
    expect(page.locator(".attempt")).to_contain_text("404 gone.bak is gone")
    expect(page.get_by_role("region", name="Data")).to_contain_text('"path": "gone.bak"')
    expect(page.get_by_role("region", name="The same by hand")).to_contain_text("taskmill show")


def test_each_failed_attempt_shows_its_traceback(site: Site, look: Open) -> None:
    ids = fill(site)
    page = look().open(site, f"task/{ids['lost']}")
    expect(page.locator(".attempt pre")).to_contain_text("in replicate")
    expect(page.locator(".attempt pre")).to_contain_text("ConnectionError: no route to the second region for lost.bak")
    expect(page.locator(".moments")).to_contain_text("Attempt 1 failed: ConnectionError")


def test_dependencies_and_the_chain_of_a_key_lead_to_other_tasks(site: Site, look: Open) -> None:
    ids = fill(site)
    first = site.do(upload.options(label="v1", key="film", depends_on=[ids["waiting"]]).submit("v1"))
    second = site.do(
        upload.options(label="v2", key="film", on_duplicate="supersede", depends_on=[ids["waiting"]]).submit("v2")
    )
    page = look().open(site, f"task/{first.id}")
    expect(page.get_by_role("region", name="Tasks with this key")).to_contain_text(f"was replaced by #{second.id}")
    page.get_by_role("link", name=f"#{second.id}").first.click()
    expect(page.locator("h1")).to_have_text("v2")
    expect(page.get_by_role("region", name="Tasks with this key")).to_contain_text(f"replaced #{first.id}")
    expect(page.locator(".graph .edge.open")).to_have_count(1)
    page.locator(".graph .box:not(.chosen)").click()
    expect(page).to_have_url(re.compile(rf"#/task/{ids['waiting']}$"))


def test_the_children_of_a_task_are_a_tree(site: Site, look: Open) -> None:
    parent = site.do(watch_both.options(label="parent").submit("left", "right"))
    site.do(started(site, 2))
    page = look().open(site, f"task/{parent.id}")
    expect(page.get_by_role("treeitem")).to_have_count(3)
    expect(page.get_by_role("region", name="Why it waits")).to_contain_text("2 children have not ended yet")
    page.get_by_role("tree").get_by_role("link").last.click()
    expect(page.locator(".task-head")).to_contain_text(f"child of #{parent.id}")


def test_a_series_is_listed_in_words_and_paused(site: Site, look: Open) -> None:
    site.do(upload.options(key="sweep", every=90 * 60).submit("a"))
    page = look().open(site, "schedules")
    expect(page.locator("tbody tr")).to_contain_text("every 90 minutes")
    page.get_by_role("button", name="Pause sweep").click()
    expect(page.get_by_role("button", name="Resume sweep")).to_be_visible()
    assert site.do(site.scheduler.snapshot()).schedules[0].paused


def test_a_task_that_does_not_exist_is_said_in_a_sentence(site: Site, look: Open) -> None:
    one = look()
    one.expected_statuses = {404}
    page = one.open(site, "task/123456")
    expect(page.get_by_role("alert")).to_contain_text("123456")


# Live


def test_a_new_task_appears_at_its_event_without_reloading_or_polling(site: Site, look: Open) -> None:
    one = look()
    one.page.add_init_script(NO_POLLING)
    page = one.open(site)
    page.wait_for_function("() => window.pollsPrevented > 0")
    expect(page.locator(".live")).to_have_text("Live")
    expect(page.locator(".state-tile[data-state=running] b")).to_have_text("0")
    site.do(watch.options(label="fresh").submit("fresh"))
    expect(page.locator(".state-tile[data-state=running] b")).to_have_text("1")
    expect(page.locator(".running-row")).to_contain_text("fresh")


def test_a_frozen_page_stands_still_until_it_continues(site: Site, look: Open) -> None:
    page = look().open(site)
    page.get_by_role("button", name="Freeze").click()
    expect(page.locator(".live")).to_have_text("Frozen")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    handle = site.do(watch.options(label="unseen").submit("unseen"))
    site.do(started(site, 1))
    # A request of the page's own would have been seen by now: this one is made after the event was sent.
    assert page.evaluate("() => fetch('api/session').then(answer => answer.status)") == 200
    assert [url for url in asked if "overview" in url] == []
    expect(page.locator(".state-tile[data-state=running] b")).to_have_text("0")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".running-row")).to_contain_text("unseen")
    site.do(handle.cancel())


def test_the_page_continues_after_the_server_restarts(tmp_path: Path, look: Open) -> None:
    one = look()
    with Site(tmp_path / "tasks.db") as site:
        page = one.open(site)
        expect(page.locator(".live")).to_have_text("Live")
        port = site.port
    # The browser reports refused connections as errors of the network; the page says it in words.
    expect(page.locator(".live")).to_have_text("No answer")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    one.expected_statuses = {401}
    with Site(tmp_path / "tasks.db", port=port) as site:
        expect(page.locator(".live")).to_have_text("Live")
        site.do(watch.options(label="after the restart").submit("x"))
        expect(page.locator(".running-row")).to_contain_text("after the restart")


def test_a_hidden_tab_asks_nothing(site: Site, look: Open) -> None:
    page = look().open(site)
    expect(page.locator(".live")).to_have_text("Live")
    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => window.isHidden });
            window.isHidden = true;
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    expect(page.locator(".live")).not_to_have_text("Live")
    site.do(watch.options(label="meanwhile").submit("x"))
    site.do(started(site, 1))
    expect(page.locator(".state-tile[data-state=running] b")).to_have_text("0")
    page.evaluate("() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }")
    expect(page.locator(".running-row")).to_contain_text("meanwhile")


def test_without_a_stream_of_events_the_page_asks_now_and_then(site: Site, look: Open) -> None:
    one = look()
    one.page.route("**/api/events*", lambda route: route.abort())
    page = one.open(site)
    expect(page.locator(".live")).to_have_text("Polling")
    site.do(watch.options(label="polled").submit("x"))
    expect(page.locator(".running-row")).to_contain_text("polled")


def test_while_the_stream_brings_overviews_the_page_asks_for_none(site: Site, look: Open) -> None:
    one = look()
    one.page.add_init_script(
        """
        window.overviews = 0;
        window.EventSource = class extends EventSource {
            constructor(address) {
                super(address);
                this.addEventListener("overview", () => { window.overviews += 1; });
            }
        };
        """
    )
    page = one.open(site)
    page.wait_for_function("() => window.overviews > 0")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for number in range(2):
        site.do(watch.options(label=f"brought {number}").submit("x"))
        expect(page.locator(".running-row").filter(has_text=f"brought {number}")).to_have_count(1)
    assert asked == []


def test_the_page_works_below_any_path(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", below="/ops/queue") as site:
        site.do(watch.options(label="below").submit("x"))
        page = look().open(site, "tasks")
        expect(page.locator("tbody tr")).to_contain_text("below")
        assert page.url == f"http://127.0.0.1:{site.port}/ops/queue/#/tasks"


# Filters


def test_a_filter_is_in_the_address_and_survives_a_reload(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site, "tasks")
    box = page.get_by_role("combobox", name="Filter tasks")
    box.fill("state:pending group:backup")
    box.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(5)
    assert page.url.endswith("#/tasks?filter=state:pending+group:backup")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.get_by_role("combobox", name="Filter tasks")).to_have_value("state:pending group:backup")


def test_the_filter_completes_fields_and_values(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site, "tasks")
    page.keyboard.press("/")
    box = page.get_by_role("combobox", name="Filter tasks")
    expect(box).to_be_focused()
    box.press_sequentially("ty")
    box.press("ArrowDown")
    box.press("Enter")
    expect(box).to_have_value("type:")
    page.get_by_role("option", name="sync::watch", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page).to_have_url(re.compile(r"filter=type:sync::watch$"))


def test_a_filter_that_is_not_understood_says_what_is(site: Site, look: Open) -> None:
    page = look().open(site, "tasks?filter=colour:red")
    expect(page.get_by_role("alert")).to_contain_text("type:, group:, state:, tag:, key:")


def test_pages_are_in_the_address_and_lead_forth_and_back(site: Site, look: Open) -> None:
    site.do(site.scheduler.pause())
    site.do(site.scheduler.submit_many(upload.options(label=f"{n}").prepare(str(n)) for n in range(120)))
    page = look().open(site, "tasks")
    expect(page.locator("tbody tr")).to_have_count(50)
    first = page.locator("tbody tr").first.inner_text()
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    expect(page.locator("tbody tr")).to_have_count(20)
    page.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Back").click()
    expect(page.locator("tbody tr").first).to_contain_text(first.split("\t")[1].strip())


# Actions


def test_a_bulk_action_counts_and_asks_before_it_acts(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site, "tasks?filter=group:backup")
    page.get_by_role("button", name="Cancel all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".bulk-count")).to_contain_text("5 tasks")
    assert site.do(site.scheduler.count(group="backup", status="pending")) == 5
    dialog.get_by_role("button", name="Cancel tasks").click()
    expect(page.get_by_text("5 tasks were cancelled.")).to_be_visible()
    expect(dialog).to_have_count(0)
    assert site.do(site.scheduler.count(group="backup", status="cancelled")) == 5


def test_a_dialog_that_is_left_changes_nothing(site: Site, look: Open) -> None:
    ids = fill(site)
    page = look().open(site, f"task/{ids['running']}")
    page.locator(".head").get_by_role("button", name="Cancel").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.locator(".head").get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert str(site.do(site.scheduler.get(ids["running"])).state) == "running"


def test_keys_move_select_and_ask_before_they_cancel(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site, "tasks?filter=state:pending")
    expect(page.locator("tbody tr")).to_have_count(5)
    for key in ("j", "x", "j", "x", "j", "k"):
        page.keyboard.press(key)
    expect(page.locator("tbody tr").nth(1)).to_have_class(re.compile(r"\bat\b"))
    expect(page.locator(".bulk-selected")).to_have_text("2 selected")
    page.keyboard.press("c")
    expect(page.locator(".bulk-count")).to_contain_text("2 tasks")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"#/task/\d+$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("freeze the page")


def test_the_priority_of_a_task_is_changed_on_its_page(site: Site, look: Open) -> None:
    ids = fill(site)
    page = look().open(site, f"task/{ids['waiting']}")
    page.locator(".head").get_by_role("button", name="Priority").click()
    page.get_by_role("dialog").get_by_role("button", name="high (64)").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("was changed")).to_be_visible()
    assert site.do(site.scheduler.get(ids["waiting"])).priority == 64


def test_a_group_shows_its_new_share_before_the_change_is_applied(site: Site, look: Open) -> None:
    for group in ("photos", "backup"):
        site.do(site.scheduler.submit_many(watch.options(group=group).prepare(f"{group}{n}") for n in range(8)))
    site.do(site.scheduler.set_max_concurrency(8))
    page = look().open(site, "groups")
    page.get_by_role("button", name="Change backup").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Weight").fill("3")
    expect(dialog.locator(".preview .chosen")).to_contain_text("2 → 4")
    assert site.do(site.scheduler.snapshot()).groups["backup"].weight == 1
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_have_count(0)
    assert site.do(site.scheduler.snapshot()).groups["backup"].weight == 3


def test_a_group_is_paused_for_a_time_and_resumed(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site, "groups")
    page.get_by_role("button", name="Pause backup").click()
    page.get_by_role("button", name="for 1 hour").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("tr", has_text="backup")).to_contain_text("paused; ends in")
    assert site.do(site.scheduler.snapshot()).groups["backup"].paused_until is not None
    page.get_by_role("button", name="Resume backup").click()
    expect(page.locator("tr", has_text="backup")).not_to_contain_text("paused")


def test_everything_is_paused_after_a_question_and_resumed(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site, "groups")
    page.get_by_role("button", name="Pause everything").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("note")).to_contain_text("The scheduler is paused")
    assert site.do(site.scheduler.snapshot()).paused
    page.get_by_role("note").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("note")).to_have_count(0)
    assert not site.do(site.scheduler.snapshot()).paused


def test_the_tasks_of_an_error_are_retried_after_a_question(site: Site, look: Open) -> None:
    ids = fill(site)
    page = look().open(site, "errors")
    page.get_by_role("button", name="Retry ConnectionError of sync::replicate").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 attempt failed in this way")
    page.get_by_role("dialog").get_by_role("button", name="Retry tasks").click()
    expect(page.get_by_text("1 task returned to the queue.")).to_be_visible()
    assert site.do(site.scheduler.get(ids["lost"])).state == "pending"


# Access


def test_the_token_leaves_the_address_and_no_script_can_read_the_cookie(site: Site, look: Open) -> None:
    one = look()
    one.allowed = site.address
    page = one.page
    page.goto(site.address_with_token)
    expect(page.locator(".state-tile")).to_have_count(6)
    assert page.url == site.address
    assert page.evaluate("() => document.cookie") == ""
    assert page.evaluate("() => localStorage.length + sessionStorage.length") == 0


def test_a_wrong_token_is_refused_with_a_sentence_and_the_right_one_opens(site: Site, look: Open) -> None:
    one = look()
    one.allowed, one.expected_statuses = site.address, {401}
    one.page.goto(f"{site.address}#token=wrong")
    expect(one.page.get_by_role("alert")).to_have_text("The token is wrong.")
    one.page.get_by_label("Token").fill(site.token)
    one.page.get_by_role("button", name="Open").click()
    expect(one.page.locator(".state-tile")).to_have_count(6)


def test_without_a_token_the_page_asks_for_one(site: Site, look: Open) -> None:
    one = look()
    one.allowed, one.expected_statuses = site.address, {401}
    one.page.goto(site.address)
    expect(one.page.get_by_role("region", name="Sign in")).to_contain_text("taskmill web")


def test_a_read_only_page_has_no_actions(tmp_path: Path, look: Open) -> None:
    with Site(tmp_path / "tasks.db", read_only=True, max_concurrency=2) as site:
        ids = fill(site)
        one = look()
        page = one.open(site)
        expect(page.locator(".top")).to_contain_text("read-only")
        for view in (*VIEWS, f"task/{ids['running']}", "tasks?filter=state:pending"):
            one.show(view)
            for name in ("Cancel", "Retry", "Priority", "Pause", "Resume", "Change", "Run now"):
                expect(page.locator("main").get_by_role("button", name=name)).to_have_count(0)
            expect(page.locator("main input[type=checkbox]")).to_have_count(0)
            page.keyboard.press("c")
            expect(page.get_by_role("dialog")).to_have_count(0)


def test_script_in_labels_errors_and_payloads_stays_text(site: Site, look: Open) -> None:
    evil = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
    failed = site.do(restore.options(label=evil, group=evil, key=evil, tags={"tag": evil}).submit(evil))
    site.do(failed.wait())
    site.do(watch.options(label=evil, group=evil).submit(evil))
    site.do(started(site, 1))
    one = look()
    page = one.open(site)
    for view in (*VIEWS, f"task/{failed.id}"):
        one.show(view)
        assert page.evaluate("() => window.pwned") is None
        assert page.locator("main img, main script").count() == 0
    expect(page.locator("h1")).to_have_text(evil)


def test_texts_control_neither_direction_nor_width(site: Site, look: Open) -> None:
    names = ["\u202egpj.exe", "写真" * 60, "x" * 500, "🙂" * 80]
    for name in names:
        site.do(watch.options(label=name, group=name[:40]).submit(name))
    one = look(viewport={"width": 360, "height": 740})
    page = one.open(site)
    for view in VIEWS:
        one.show(view)
        assert page.evaluate(TOO_WIDE) == [], view


# Looks


def test_the_page_names_all_of_its_modules_so_that_they_load_at_once() -> None:
    folder = Path(taskmill.web.__file__).with_name("static")
    modules = {path.relative_to(folder).as_posix() for path in folder.rglob("*.js")}
    assert set(re.findall(r'"([^"]+\.js)"', (folder / "index.html").read_text(encoding="utf-8"))) == modules


@pytest.mark.timeout(300)
def test_nothing_is_wider_than_the_window(site: Site, look: Open) -> None:
    ids = fill(site)
    one = look()
    page = one.open(site)
    for width in (360, 800, 1440, 3840):
        page.set_viewport_size({"width": width, "height": 900})
        for view in (*VIEWS, f"task/{ids['waiting']}", f"task/{ids['gone']}"):
            one.show(view)
            assert page.evaluate(TOO_WIDE) == [], (view, width)


def test_a_figure_and_its_unit_stay_on_one_line(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site)
    expect(page.locator(".figure b").first).to_be_visible()
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(BROKEN_FIGURES) == 0, width
        assert page.evaluate(TOO_WIDE) == [], width


def test_the_system_chooses_between_light_and_dark(site: Site, look: Open) -> None:
    page = look(color_scheme="light").open(site)
    assert page.evaluate(BRIGHTNESS) > 200
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(BRIGHTNESS) < 60


@pytest.mark.timeout(300)
def test_every_text_has_contrast_aa(site: Site, look: Open) -> None:
    ids = fill(site)
    one = look()
    page = one.open(site)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        for view in (*VIEWS, *(f"task/{id}" for id in ids.values())):
            one.show(view)
            assert page.evaluate(CONTRASTS) == [], (view, scheme)


def test_every_control_has_a_name_for_screen_readers(site: Site, look: Open) -> None:
    ids = fill(site)
    one = look()
    page = one.open(site)
    for view in (*VIEWS, f"task/{ids['waiting']}"):
        one.show(view)
        assert page.evaluate(NAMELESS) == [], view


def test_a_live_update_moves_nothing_on_the_page(site: Site, look: Open) -> None:
    fill(site)
    page = look().open(site)
    before = page.evaluate(PLACES)
    site.do(site.scheduler.submit_many(upload.options(group="backup").prepare(f"more{n}") for n in range(95)))
    expect(page.locator(".state-tile[data-state=pending] b")).to_have_text("100")
    assert page.evaluate(PLACES) == before
