"""show/: pages to look at, each one HTML file that needs nothing else.

Plain data and the names of components come in, a page goes out. The room knows nothing of plans:
who has something to show brings the data, and a script that puts the components together.
"""

from arenite.show.page import document, read_part

__all__ = ["document", "read_part"]
