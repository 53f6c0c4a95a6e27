"""How long a visitor of the demo waits. Used by `bench/run.py demo`; needs Chromium."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright
from transformers import LlamaForCausalLM

from carbon.model import PRESETS, save_model

ROOT = Path(__file__).parents[1]
PATHS = ("/", "/generate", "/read", "/variant", "/token", "/tokenizer", "/embeddings")
_ANSWERED = re.compile(r"^\d+\.\d\d s$")
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def waits(port: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Return for each page the seconds to the first paint, to the answer, and of the answer alone.

    The model is `tiny` with random weights. Every visit uses a new browser profile, and the
    longest of the rounds counts.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        save_model(LlamaForCausalLM(PRESETS["tiny"]()), folder / "model")
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
            max(visit[path][2] for visit in seen),
        )
        for path in PATHS
    }


def _visit(address: str) -> dict[str, tuple[float, float, float]]:
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for path in PATHS:
            page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
            start = time.perf_counter()
            page.goto(address + path)
            answer_seconds = _answer_seconds(page)
            took = time.perf_counter() - start
            found[path] = (page.evaluate(_PAINT) / 1000, took, answer_seconds)
            page.context.close()
        browser.close()
    return found


def _answer_seconds(page: Page) -> float:
    """Wait for the answer, and return the seconds that the page reports for it."""
    status = page.locator("#status").get_by_text(_ANSWERED)
    status.wait_for(timeout=60_000)
    return float(status.inner_text().split()[0])
