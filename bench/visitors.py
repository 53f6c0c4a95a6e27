"""How long a visitor of the demo waits. Used by `bench/run.py demo`; needs Chromium."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

from carbon.model import PRESETS, save_model
from train.models.network import stock_network

ROOT = Path(__file__).parents[1]
PATHS = ("/", "/variant", "/gene", "/write", "/inside")
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def waits(port: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return for each page the seconds to the first paint, and to the answer.

    The model is `tiny` with random weights. Every visit uses a new browser profile, and the
    longest of the rounds counts.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        save_model(stock_network(PRESETS["tiny"]()), folder / "model")
        words = ["-m", "carbon", "corpus", "simulate", "--output", f"{folder}/genome"]
        subprocess.run([sys.executable, *words, "--genome-bp", "600000"], cwd=ROOT, check=True)
        server = subprocess.Popen(
            [sys.executable, "-m", "demo", "--model", f"{folder}/model",
             "--genome", f"{folder}/genome/genome.fa",
             "--annotation", f"{folder}/genome/genes.gff3", "--port", str(port)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stderr is not None
            next(line for line in server.stderr if line.startswith("open"))
            seen = [_visit(f"http://127.0.0.1:{port}") for _ in range(rounds)]
        finally:
            server.terminate()
            server.wait()
    return {
        path: (
            max(visit[path][0] for visit in seen),
            max(visit[path][1] for visit in seen),
        )
        for path in PATHS
    }


def _visit(address: str) -> dict[str, tuple[float, float]]:
    times = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for path in PATHS:
            page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
            start = time.perf_counter()
            page.goto(address + path)
            page.locator("#status .done").wait_for(state="attached", timeout=60_000)
            took = time.perf_counter() - start
            times[path] = (page.evaluate(_PAINT) / 1000, took)
            page.context.close()
        browser.close()
    return times
