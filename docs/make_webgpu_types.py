"""Write docs/webgpu-types.md: where each op runs that works on numbers of 64 bits.

python docs/make_webgpu_types.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.backends.webgpu.wide_types import PAGE, page

PAGE.write_text(page())
