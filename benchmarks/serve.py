"""Many visitors of ``sumpool serve`` at once: how long they wait, and whether any gets an error.

    python benchmarks/serve.py INDEX --out runs/bench-serve            # a minute, 50 visitors
    python benchmarks/serve.py INDEX --out runs/bench-serve --quick    # seconds; means nothing

Starts the server in a process of its own. Every visitor goes on without a pause: the first page and
thumbnails of it, results of an indexed image, of a part of one and of an upload, why two images
match, the JSON interface. Stored are the seconds that each kind of request took, the number of
errors (any status of 400 or more, and connections that fail), and the peak of resident memory of
the server. Writes results.json and table.md to --out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import io
import json
import random
import re
import shlex
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
from _machine import machine
from PIL import Image
from tqdm import tqdm

#: Images that visitors upload, and their side in pixels.
UPLOADS, SIDE = 20, 320


class Visitor:
    """Goes from page to page.

    Args:
        client: Asks the server.
        seed: Seed of where it goes.
        images: Width and height of indexed images, by id.
        uploads: Files that it may upload.
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
        """Ask once, and note how long it took."""
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
        """Visit until that time."""
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
    """Images to upload, as JPEG."""
    draw, files = random.Random(0), []
    for _ in range(count):
        image = Image.frombytes("RGB", (8, 8), draw.randbytes(192)).resize((side, side))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG")
        files.append(buffer.getvalue())
    return files


async def visit(address: str, visitors: int, seconds: float) -> list[Visitor]:
    """Let visitors in, and wait until the last has left."""
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
    """Counts, medians and tails by the kind of request."""
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
    """The summary as Markdown."""
    lines = [
        "| request | number | median [s] | 95 % below [s] | longest [s] |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind, row in found["kinds"].items():
        times = " | ".join(f"{row[name]:.2f}" for name in ("median_s", "p95_s", "longest_s"))
        lines.append(f"| {kind} | {row['requests']:,} | {times} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Start a server, visit it, stop it, write what was measured."""
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
        "command": shlex.join(["python", *sys.argv]),
        "visitors": args.visitors,
        "seconds": args.seconds,
        "machine": machine(torch.device("cpu")),
        **found,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (args.out / "table.md").write_text(table(found), encoding="utf-8")
    print(table(found))
    rate, errors = f"{found['per_second']:.1f}", len(found["errors"])
    print(f"{found['requests']:,} requests, {rate} per second, {errors} errors")
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
