"""From `docs/` and the code to a site in one folder, which needs no network.

The pages are put together in `build/docs`: those of `docs/`, the notebook with its pictures, and a
reference made of the code itself. MkDocs or Zensical then builds `build/site` by `mkdocs.yml`, and
every link, anchor and address of the result is looked at.
"""

import os
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from docs_check import complaints
from docs_pages import put_together

from carbon.console import Parser, port_number, run_command
from carbon.progress import say

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
ENGINES = {
    "mkdocs": ("mkdocs", "build", "--strict", "--quiet", "--clean"),
    "zensical": ("zensical", "build", "--strict", "--clean"),
}


def main() -> int:
    """Build, check, and serve where that is asked for; return the exit code."""
    parser = Parser(prog="scripts/docs", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("build", "serve"), default="build")
    parser.add_argument("--engine", choices=ENGINES, default="mkdocs")
    parser.add_argument(
        "--port", type=port_number, default=8000, help="of `serve`, on this machine"
    )
    arguments = parser.parse_args()
    say("putting the pages together: the notebook runs, the reference is read from the code")
    put_together(ROOT, ROOT / "build" / "docs")
    found = build(arguments.engine)
    for complaint in found:
        say(f"error: {complaint}")
    if found:
        return 1
    print(SITE / "index.html")
    if arguments.command == "serve":
        _serve(arguments.port)
    return 0


def build(engine: str) -> list[str]:
    """Build the site from the pages; return what is wrong with it, a line each."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # Zensical builds this site too
    built = subprocess.run([sys.executable, "-m", *ENGINES[engine]], cwd=ROOT, env=environment)
    return complaints(SITE) if built.returncode == 0 else [f"{engine} ended with an error"]


def _serve(port: int) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=SITE)
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        say(f"open http://127.0.0.1:{server.server_port}/ (stop with Ctrl-C)")
        server.serve_forever()


if __name__ == "__main__":
    raise SystemExit(run_command(main))
