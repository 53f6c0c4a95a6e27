"""Waiting times of a visitor: the first paint, and the example's answer. Needs Chromium."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from inputs import random_model
from measure import ROOT, Measure, at_most
from playwright.sync_api import sync_playwright

from carbon.model import save_model

PORT = 7899
PATHS = ("/", "/variant", "/gene", "/write", "/inside")
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measures(quick: bool) -> list[Measure]:
    """Visit `tiny` with random weights on a simulated genome; the longest visit counts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(random_model("tiny").model.network, folder / "model")
        words = ["-m", "carbon", "corpus", "simulate", "--output", f"{folder}/genome"]
        subprocess.run([sys.executable, *words, "--genome-bp", "600000"], cwd=ROOT, check=True)
        server = subprocess.Popen(
            [sys.executable, "-m", "demo", "--model", f"{folder}/model",
             "--genome", f"{folder}/genome/genome.fa",
             "--annotation", f"{folder}/genome/genes.gff3", "--port", str(PORT)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stderr is not None
            next(line for line in server.stderr if line.startswith("open"))
            visits = [_visit(f"http://127.0.0.1:{PORT}") for _ in range(1 if quick else 3)]
        finally:
            server.terminate()
            server.wait()
    measured = []
    for path in PATHS:
        paint, answer = (max(visit[path][i] for visit in visits) for i in (0, 1))
        measured += [
            at_most(f"{path}:first_paint", paint, "s", 1.0),
            Measure(f"{path}:until_the_example_is_answered", answer, "s"),
        ]
    return measured


def _visit(address: str) -> dict[str, tuple[float, float]]:
    """Return the seconds to the first paint and to the answer, by page, with a new profile each."""
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
