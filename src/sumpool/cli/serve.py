"""``sumpool serve``: serve an index as a web page."""

from __future__ import annotations

import os
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_device, count, verb_parser
from sumpool.system.extras import import_extra

SUMMARY = "serve an index as a web page"

#: Environment variable with the token, which keeps it out of the list of processes.
TOKEN = "SUMPOOL_TOKEN"

DESCRIPTION = """\
Serve an index as a web page with a JSON API. Drop, paste, upload or click an image to search by it,
or by a region of it; see why two images match, what prototypes stand for, and a map of the
collection. Every view has a URL that can be shared.

By default, the server accepts connections from this machine only. For others, set --host and a
token: visitors open http://HOST:PORT/?token=TOKEN once. Connections are not encrypted: on a network
that you do not trust, put a TLS proxy in front. Uploads are kept in memory only.

examples:
  sumpool serve photos.index
  SUMPOOL_TOKEN=… sumpool serve photos.index --host 0.0.0.0 --port 80
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool serve INDEX [options]")
    parser.add_argument("index", type=Path, metavar="INDEX", help="folder of the index")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on"
    )
    parser.add_argument(
        "--port", type=int, default=8000, metavar="N", help="port to listen on, 0 for any free one"
    )
    parser.add_argument(
        "--token",
        metavar="TEXT",
        help=f"token that visitors need, at least 16 characters (default: ${TOKEN})",
    )
    add_device(parser)
    parser.add_argument(
        "--upload_mib", type=count, default=16, metavar="N", help="maximum size of an upload in MiB"
    )
    parser.add_argument(
        "--upload_megapixels",
        type=count,
        default=40,
        metavar="N",
        help="maximum number of pixels of an upload, in millions",
    )
    return parser


def run(options: Namespace) -> int:
    """Serve until interrupted."""
    from sumpool.cli.inputs import choose_device
    from sumpool.search import Index
    from sumpool.serve.uploads import Limits

    server = import_extra("sumpool.serve.server", "search", "serve needs")
    token = options.token or os.environ.get(TOKEN) or None
    server.check_access(options.host, token)
    upload_bytes = options.upload_mib * 2**20
    limits = Limits(
        upload_bytes=upload_bytes,
        pixels=options.upload_megapixels * 10**6,
        kept_bytes=max(Limits.kept_bytes, upload_bytes),
    )
    index = Index.open(options.index, choose_device(options.device))

    def ready(address: str) -> None:
        where = f"{address}?token=…" if token else address
        print(f"serving {options.index} at {where} (press Ctrl-C to stop)", flush=True)

    server.serve(
        index, host=options.host, port=options.port, token=token, limits=limits, ready=ready
    )
    print("stopped")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe an interrupt before the server listens."""
    return "the server had not started yet"
