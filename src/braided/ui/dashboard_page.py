"""The page: separate files for the server, or a single file that contains a history and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files

from braided.runtime.contract import Json

PAGE, ICON, STYLE = "dashboard.html", "icon.svg", "dashboard.css"
SCRIPTS = ("drawing.js", "sections.js", "dashboard.js")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# No content from other servers, nothing inline, and no frame around the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@lru_cache
def asset(name: str) -> bytes:
    return files("braided.ui").joinpath("assets", name).read_bytes()


def whole_page(events: Sequence[Json], text: str) -> str:
    """Return the page as one file that shows these events, and the report as text if scripts are disabled."""
    style = asset(STYLE).decode()
    script = "\n".join(asset(name).decode() for name in SCRIPTS)
    policy = f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'"
    # In a script element, only these characters can end it or begin a comment.
    data = json.dumps(list(events), separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    page = asset(PAGE).decode()
    links = [f'<link rel="icon" href="{ICON}">', f'<link rel="stylesheet" href="{STYLE}">']
    links += [f'<script defer src="{name}"></script>' for name in SCRIPTS]
    for link in links:
        assert link in page
        page = page.replace(link + "\n", "")
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n</head>'
    body = (
        f"<noscript><pre>{escape(text)}</pre></noscript>\n"
        f'<script type="application/json" id="history">{data}</script>\n<script>{script}</script>\n</body>'
    )
    return page.replace("</head>", head, 1).replace("</body>", body, 1)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
