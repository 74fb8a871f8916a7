"""The page at `/`: a chat, and the machine at work beside it, as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.memory.svg import region_meaning
from arenite.memory.values import RESIDENT_REGIONS
from arenite.show import document, read_part

if TYPE_CHECKING:
    from arenite.serve.served_model import Served

STYLES = ("page.css", "serve.css")
SCRIPTS = ("elements.js", "markdown.js", "chat.js", "serve.js")


def page(served: Served) -> str:
    """The page of what is served; what changes it asks the server for."""
    meanings = {"state": "keys and values"} if served.makes_text else {}
    planned = served.plan.regions
    regions = [
        {
            "name": name,
            "about": meanings.get(name, region_meaning(planned[name])),
            "nbytes": planned[name].nbytes,
        }
        for name in RESIDENT_REGIONS
        if name in planned and planned[name].nbytes
    ]
    data = {
        "name": served.name,
        "chats": served.makes_text,
        "about": served.about,
        "memory": {"total": served.plan.total_nbytes, "regions": regions},
    }
    styles, scripts = map(read_part, STYLES), map(read_part, SCRIPTS)
    return document(served.name, data, styles, scripts, connects=True)
