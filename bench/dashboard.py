"""How long somebody waits for the dashboard: its first page, and a knob turned on ten minutes of ten requests a second.

Chromium is driven as in the tests; tests/browser/timing.py says what the rows are. Medians of some repeats, in a browser that has
not been here before for the first page, and with a seed of its own for every turn of the knob.

    python bench/dashboard.py [--repeats N] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser import chromium, server, timing

WARM = 10.0
"""Seconds between the server's start and its first reader."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    if (why := chromium.lacking()) is not None:
        sys.exit(f"error: {why}")
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        found = server.start(workspace)
        try:
            time.sleep(WARM)
            with chromium.browser() as browser:
                times = timing.measured(found, browser, options.repeats)
        finally:
            found.stop()
    print(json.dumps(times) if options.json else "\n".join(timing.lines(times)))


if __name__ == "__main__":
    main()
