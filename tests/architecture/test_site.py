"""The documentation site: the navigation lists each page, and pages from outside ``docs/`` are adapted."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.sources import ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "tools" / "build_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def places(site: ModuleType) -> list[str]:
    """Return the pages of the site, by their places."""
    pages = [*DOCS.rglob("*.md"), *site.OUTSIDE]
    return sorted(str(site.place_of(page)) for page in pages)


def test_every_page_is_in_the_navigation_once(site: ModuleType, places: list[str]) -> None:
    _, _, navigation = site.settings().partition("\nnav:\n")
    listed = Counter(re.findall(r"[\w./-]+\.md", navigation))
    assert sorted(listed) == places, "add new pages to nav in mkdocs.yml"
    assert [page for page, times in listed.items() if times > 1] == []


def test_decisions_are_the_last_section_of_the_navigation(site: ModuleType) -> None:
    listed = re.findall(r"[\w./-]+\.md", site.settings())
    assert listed[-1].startswith("decisions/")
    assert not any(page.startswith("decisions/") for page in listed[: -len(list((DOCS / "decisions").glob("*.md")))])


def test_the_title_has_the_version(site: ModuleType) -> None:
    import taskmill

    assert f"site_name: taskmill {taskmill.__version__}\n" in site.settings()


def test_links_of_every_page_lead_to_pages_or_files_of_the_site(site: ModuleType, places: list[str]) -> None:
    broken = []
    for page in [*DOCS.rglob("*.md"), *site.OUTSIDE]:
        folder = (DOCS / str(site.place_of(page))).parent
        for link in LINK.findall(site.FENCE.sub("", site.adapted(page.read_text(encoding="utf-8"), page))):
            if "://" in link:
                continue
            target = Path(*(folder / link).parts).resolve()
            if not target.is_file() and target.relative_to(DOCS.resolve()).as_posix() not in places:
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_links_across_the_border_of_docs_are_adapted(site: ModuleType) -> None:
    inside = DOCS / "explanation" / "speed.md"
    assert site.adapted("[b](../../benchmarks/README.md#x)", inside) == "[b](../project/benchmarks.md#x)"
    assert site.adapted("[t](time.md)", inside) == "[t](time.md)"
    outside = ROOT / "CONTRIBUTING.md"
    assert site.adapted("[g](docs/glossary.md)", outside) == "[g](../glossary.md)"
    assert site.adapted("[a test](tests/both_engines.py)", outside) == "a test"
    assert site.adapted("```\n[a](b.py)\n```", outside) == "```\n[a](b.py)\n```"


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://unpkg.com/x"></script>',
        "<script defer src=//cdn.example/x.js></script>",
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<link href="https://fonts.example" rel="preconnect">',
        '<img alt="badge" src="https://img.example/b.svg">',
        '<pre class="mermaid">',
    ],
)
def test_anything_loaded_from_another_origin_is_found(site: ModuleType, element: str) -> None:
    assert site.LOADED.search(element)


@pytest.mark.parametrize(
    "element",
    [
        '<a href="https://www.postgresql.org">PostgreSQL</a>',
        '<script src="assets/bundle.js"></script>',
        '<link rel="canonical" href="https://example.org/">',
    ],
)
def test_links_to_follow_and_own_files_are_allowed(site: ModuleType, element: str) -> None:
    assert not site.LOADED.search(element)
