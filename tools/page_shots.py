#!/usr/bin/env python3
"""Makes the pictures of docs/pages with Chromium: of reports that headstart-lab writes as HTML.

    tools/page_shots.py HEADSTART_LAB    HEADSTART_LAB is the program
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from status_shots import shoot

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pages"
RESULTS = ROOT / "lab/results"
# Options of a page, and what it is of.
PAGES = {
    "show": (["pageload", "show"], "2026-11-22-browser/loads/50-ms-news-plain-0001.har.gz"),
    "plan": (["pageload", "plan", "--rtt", "50ms"],
             "2026-11-22-browser/loads/50-ms-news-plain-0001.har.gz"),
    "report": (["lab", "report"], "2026-11-27-turbotls-table"),
}
# Width, height, and Chromium's preferredColorScheme (0 is dark). Below 500 pixels it makes no
# window, and a frame of that width shows the page as a telephone does.
SIZES = {"light": (900, 1100, 1), "dark": (900, 1100, 0), "narrow": (500, 1100, 1)}
FRAME = """<!doctype html><style>body { margin: 0 }
iframe { width: 390px; height: 1100px; border: 0 }</style><iframe src="%s"></iframe>"""


def main():
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as place:
        for name, (words, file) in PAGES.items():
            page = Path(place) / f"{name}.html"
            # Pages name the files that they are of.
            of = RESULTS / file
            subprocess.run([program, *words, "--html", page, of.name], cwd=of.parent, check=True,
                           capture_output=True)
            frame = Path(place) / f"{name}-frame.html"
            frame.write_text(FRAME % page.name)
            for kind, size in SIZES.items():
                shown = frame if kind == "narrow" else page
                shoot(place, PICTURES / f"{name}-{kind}", shown.as_uri(), *size)


if __name__ == "__main__":
    main()
