"""Load test of ``sumpool serve``: response times and errors with many concurrent visitors.

    python benchmarks/serve.py INDEX --out runs/bench-serve            # a minute, 50 visitors
    python benchmarks/serve.py INDEX --out runs/bench-serve --quick    # seconds; smoke test

Starts the server in its own process. Every visitor makes requests without a pause: the home page
and thumbnails, results for an indexed image, for a region of one and for an upload, the explanation
of a match, the JSON API. Stored are the times of each kind of request, the errors (any status of
400 or more, and failed connections), and the peak resident memory of the server. Writes
results.json and table.md to --out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import io
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx2 as httpx
import torch
from _machine import command_line, machine
from _writing import write
from PIL import Image
from tqdm import tqdm

#: Number of images that visitors upload, and their side in pixels.
UPLOADS, SIDE = 20, 320


class Visitor:
    """A simulated visitor.

    Args:
        client: HTTP client.
        seed: Seed of its random choices.
        images: Width and height of indexed images, by id.
        uploads: Files to upload.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        seed: int,
        images: dict[int, tuple[int, int]],
        uploads: list[bytes],
    ) -> None:
        self.client, self.draw = client, random.Random(seed)
        self.images, self.uploads = images, uploads
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []

    async def ask(
        self, kind: str, address: str, body: bytes | None = None
    ) -> httpx.Response | None:
        """Send a request and record its time."""
        begun = time.perf_counter()
        method = "GET" if body is None else "POST"
        try:
            response = await self.client.request(method, address, content=body)
        except httpx.HTTPError as error:
            self.errors.append(f"{kind}: {type(error).__name__}")
            return None
        self.seconds[kind].append(time.perf_counter() - begun)
        if response.status_code >= 400:
            self.errors.append(f"{kind}: {response.status_code}")
            return None
        return response

    async def stay(self, until: float) -> None:
        """Make requests until the time ``until``."""
        ids = list(self.images)
        while time.perf_counter() < until:
            id, other = self.draw.sample(ids, 2)
            await self.ask("first page", f"/?seed={self.draw.randrange(5)}")
            for shown in self.draw.sample(ids, 3):
                await self.ask("thumbnail", f"/picture?image={shown}&size=small")
            await self.ask("indexed image", f"/search?image={id}")
            width, height = self.images[id]
            box = f"{width // 4},{height // 4},{width // 4 * 3},{height // 4 * 3}"
            await self.ask("part of an image", f"/search?image={id}&box={box}")
            found = await self.ask("upload", "/api/uploads", self.draw.choice(self.uploads))
            if found is not None:
                await self.ask("uploaded image", found.json()["address"])
            await self.ask("why two match", f"/match?image={id}&with={other}")
            await self.ask("JSON search", f"/api/search?image={other}&k=10")


def noise(count: int, side: int) -> list[bytes]:
    """Draw random images to upload, as JPEG."""
    draw, files = random.Random(0), []
    for _ in range(count):
        image = Image.frombytes("RGB", (8, 8), draw.randbytes(192)).resize((side, side))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG")
        files.append(buffer.getvalue())
    return files


async def visit(address: str, visitors: int, seconds: float) -> list[Visitor]:
    """Run all visitors concurrently and return them."""
    limits = httpx.Limits(max_connections=visitors, max_keepalive_connections=visitors)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
        listed = (await client.get("/api/images?limit=1000")).json()["images"]
        images = {it["id"]: (it["width"], it["height"]) for it in listed}
        files = noise(UPLOADS, SIDE)
        until = time.perf_counter() + seconds
        all_of_them = [Visitor(client, seed, images, files) for seed in range(visitors)]
        stays = [asyncio.ensure_future(it.stay(until)) for it in all_of_them]
        for ended in tqdm(asyncio.as_completed(stays), "visitors", visitors):
            await ended
    return all_of_them


def summary(visitors: list[Visitor], spent: float) -> dict[str, Any]:
    """Compute counts, medians and tails by kind of request."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for visitor in visitors:
        for kind, values in visitor.seconds.items():
            seconds[kind] += values
    rows = {
        kind: {
            "requests": len(values),
            "median_s": statistics.median(values),
            "p95_s": sorted(values)[int(0.95 * (len(values) - 1))],
            "longest_s": max(values),
        }
        for kind, values in seconds.items()
    }
    total = sum(map(len, seconds.values()))
    errors = [it for visitor in visitors for it in visitor.errors]
    return {"requests": total, "per_second": total / spent, "errors": errors, "kinds": rows}


def table(found: dict[str, Any]) -> str:
    """Format the summary as Markdown."""
    lines = [
        "| request | number | median [s] | 95 % below [s] | longest [s] |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind, row in found["kinds"].items():
        times = " | ".join(f"{row[name]:.2f}" for name in ("median_s", "p95_s", "longest_s"))
        lines.append(f"| {kind} | {row['requests']:,} | {times} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Start a server, visit it, stop it, write the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("index", type=Path, metavar="INDEX")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--visitors", type=int, default=50, metavar="N")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S")
    parser.add_argument("--quick", action="store_true", help="two visitors, one second")
    args = parser.parse_args()
    if args.quick:
        args.visitors, args.seconds = 2, 1.0
    command = [sys.executable, "-m", "sumpool", "serve", str(args.index), "--port=0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.search(r"at (http://\S+)", server.stdout.readline())
        if address is None:
            return 1
        begun = time.perf_counter()
        visitors = asyncio.run(visit(address[1], args.visitors, args.seconds))
        found = summary(visitors, time.perf_counter() - begun)
        status = Path(f"/proc/{server.pid}/status")
        if status.exists():
            kib = re.search(r"VmHWM:\s+(\d+)", status.read_text())
            found["peak_bytes"] = int(kib[1]) * 1024 if kib else None
        server.send_signal(signal.SIGTERM)
        found["exit_status"] = server.wait(60)
    finally:
        server.kill()
        server.communicate()
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command_line(__file__),
        "visitors": args.visitors,
        "seconds": args.seconds,
        "machine": machine(torch.device("cpu")),
        **found,
    }
    write(args.out, results, table(found))
    print(table(found))
    rate, errors = f"{found['per_second']:.1f}", len(found["errors"])
    print(f"{found['requests']:,} requests, {rate} per second, {errors} errors")
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
