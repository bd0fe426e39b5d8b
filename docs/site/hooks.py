"""Make README.md the start page of the site, and keep links between pages where the site puts them."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[2]
README, START = "README.md", "index.md"
LINK = re.compile(r"\[([^\]]*)\]\(([\w./-]+)(#[\w-]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the start page."""
    files.append(File.generated(config, START, content=(REPOSITORY / README).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links between the repository's files into links of the site; files outside docs/ become plain text."""
    name = page.file.src_uri
    if name.startswith("api/"):
        # The search shows prose before docstrings.
        page.meta["search"] = {"boost": 0.001}
    folder = posixpath.dirname(README if name == START else f"docs/{name}")

    def of_the_site(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        if path != README and not path.startswith("docs/"):
            # mkdocs reports a file that is missing.
            return text if (REPOSITORY / path).exists() else link.group()
        linked = START if path == README else path.removeprefix("docs/")
        return f"[{text}]({posixpath.relpath(linked, posixpath.dirname(name) or '.')}{anchor})"

    return LINK.sub(of_the_site, markdown)
