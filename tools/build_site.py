"""Build the documentation site into ``build/site``.

    python tools/build_site.py

The pages are collected in ``build/docs``. Zensical renders them in strict mode, which refuses a link or an anchor that
leads nowhere.

- Pages outside ``docs/``, such as the changelog, are part of the site. Links to them and from them are adapted. A link
  to a file that is no page, such as a source file, becomes plain text.
- The version of taskmill is in the title. Every decision is in the navigation, and none in the search.
- The site loads nothing from another origin: a page that would do so fails the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WORK = ROOT / "build"
SITE = WORK / "site"

OUTSIDE = {
    ROOT / "CHANGELOG.md": "project/changelog.md",
    ROOT / "ARCHITECTURE.md": "project/architecture.md",
    ROOT / "CONTRIBUTING.md": "project/contributing.md",
    ROOT / "SECURITY.md": "project/security.md",
    ROOT / "CODE_OF_CONDUCT.md": "project/conduct.md",
    ROOT / "benchmarks" / "README.md": "project/benchmarks.md",
}
"""Pages of the repository that are pages of the site too, and their places there."""

UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
"""The marker that keeps a page out of the search: a reader who looks for dead letters wants to use them."""

LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect))[^>]*\bhref=[\"']?(?:https?:)?//"
    r"|<pre\b[^>]*class=[\"']?mermaid"  # drawn by a script that the theme loads from another origin
)
"""Elements that make a browser load something from another origin. A link that a reader follows is no such element."""


def place_of(page: Path) -> str | None:
    """Return the place of a file on the site, None if it is not part of it."""
    return page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else OUTSIDE.get(page)


def adapted(text: str, page: Path) -> str:
    """Return the text of a page with its links as they are on the site."""
    folder = Path(str(place_of(page))).parent

    def link(found: re.Match[str]) -> str:
        if not found["path"] or "://" in found["path"]:
            return found[0]
        target = place_of((page.parent / found["path"]).resolve())
        if target is None:
            return found["text"]
        path = Path(os.path.relpath(target, folder)).as_posix()
        return f"[{found['text']}]({path}{found['anchor'] or ''})"

    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in FENCE.split(text))


def version() -> str:
    """Return taskmill's version, without importing it."""
    source = (ROOT / "src" / "taskmill" / "__init__.py").read_text(encoding="utf-8")
    return str(re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0])


def settings() -> str:
    """Return ``mkdocs.yml`` with the version and all decisions."""
    decisions = ["decisions/index.md", *sorted(f"decisions/{page.name}" for page in (DOCS / "decisions").glob("0*.md"))]
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    text = text.replace("site_name: taskmill\n", f"site_name: taskmill {version()}\n")
    return re.sub(r"Decisions: \[\].*", f"Decisions: [{', '.join(decisions)}]", text)


def collect() -> None:
    """Put all pages and the settings into the working folder."""
    shutil.rmtree(WORK / "docs", ignore_errors=True)
    shutil.copytree(DOCS, WORK / "docs")
    for page in [*DOCS.rglob("*.md"), *OUTSIDE]:
        target = WORK / "docs" / str(place_of(page))
        target.parent.mkdir(parents=True, exist_ok=True)
        text = adapted(page.read_text(encoding="utf-8"), page)
        target.write_text(text if page.parent.name != "decisions" else UNSEARCHED + text, encoding="utf-8")
    (WORK / "mkdocs.yml").write_text(settings(), encoding="utf-8")


def loads() -> list[str]:
    """Return what the pages of the site would load from another origin."""
    pages = sorted(SITE.rglob("*.html"))
    return [f"{page}: {found[0]}" for page in pages for found in LOADED.finditer(page.read_text(encoding="utf-8"))]


def main() -> int:
    collect()
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
    if subprocess.run(command, cwd=WORK, check=False).returncode != 0:
        return 1
    if foreign := loads():
        print("the site would load this from another origin:", *foreign, sep="\n  ", file=sys.stderr)
        return 1
    print(f"{len(list(SITE.rglob('*.html')))} pages; read them with: python -m http.server -b 127.0.0.1 -d {SITE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
