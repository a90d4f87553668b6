"""``sumpool serve``: serve an index as a web page."""

from __future__ import annotations

import os
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_device, count, verb_parser
from sumpool.system.errors import UserError

SUMMARY = "serve an index as a web page"

#: Environment variable with the token, which keeps it out of the list of processes.
TOKEN = "SUMPOOL_TOKEN"

DESCRIPTION = """\
Serve an index as a web page with a JSON interface: search by an image that is dropped, pasted,
uploaded or clicked, or by a part of it; see why two images match, what prototypes stand for, and a
map of the collection. Every view is an address that can be shared.

The server listens on this machine alone. To listen elsewhere, give a token: visitors open
http://HOST:PORT/?token=TOKEN once. The connection is not encrypted: put a proxy with TLS in front
of it where the network is not yours. Uploads stay in memory and are gone when the server stops.

examples:
  sumpool serve photos.index
  SUMPOOL_TOKEN=… sumpool serve photos.index --host 0.0.0.0 --port 80
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool serve INDEX [options]")
    parser.add_argument("index", type=Path, metavar="INDEX", help="folder of an index")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on"
    )
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="0 for any free port")
    parser.add_argument(
        "--token",
        metavar="TEXT",
        help=f"what visitors must know, 16 characters or more (default: ${TOKEN})",
    )
    add_device(parser)
    parser.add_argument(
        "--upload_mib", type=count, default=16, metavar="N", help="most MiB of an upload"
    )
    parser.add_argument(
        "--upload_megapixels",
        type=count,
        default=40,
        metavar="N",
        help="most million pixels of an upload",
    )
    return parser


def run(options: Namespace) -> int:
    """Serve until interrupted."""
    # Imported here: torch takes seconds, which `--help` need not wait for.
    from sumpool.cli.inputs import choose_device
    from sumpool.search import Index
    from sumpool.serve.uploads import Limits

    try:
        from sumpool.serve.server import check_access, serve
    except ModuleNotFoundError as error:
        raise UserError(f"serve needs {error.name}: pip install 'sumpool[search]'") from error
    token = options.token or os.environ.get(TOKEN) or None
    check_access(options.host, token)
    upload_bytes = options.upload_mib * 2**20
    limits = Limits(
        upload_bytes=upload_bytes,
        pixels=options.upload_megapixels * 10**6,
        kept_bytes=max(Limits.kept_bytes, upload_bytes),
    )
    index = Index.open(options.index, choose_device(options.device))

    def ready(address: str) -> None:
        where = f"{address}?token=…" if token else address
        print(f"serving {options.index} at {where} (Ctrl-C stops it)", flush=True)

    serve(index, host=options.host, port=options.port, token=token, limits=limits, ready=ready)
    print("stopped")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe an interrupt before the server listens."""
    return f"{options.index} was not served yet"
