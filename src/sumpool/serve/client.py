"""A client of the JSON API that uses only the standard library."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from http.client import HTTPException
from numbers import Integral
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from sumpool.system.errors import UserError


class ClientError(UserError):
    """The server rejected a request or did not answer; the message says why."""


class Client:
    """A client of a server started by ``sumpool serve``.

    Args:
        address: Address of the server, such as ``http://127.0.0.1:8000``.
        token: Token of the server, if it requires one.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, address: str, token: str | None = None, timeout: float = 60) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(f"address must be like http://127.0.0.1:8000, got {address!r}")
        self.address = address.rstrip("/")
        self.timeout = timeout
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def search(
        self,
        query: int | bytes | str | os.PathLike[str],
        k: int = 10,
        *,
        label: str | None = None,
        box: Sequence[int] | None = None,
        threshold: float | None = None,
    ) -> list[dict[str, Any]]:
        """Find the most similar images, each with id, path, label and similarity.

        Args:
            query: The id of an indexed image, an image file, or its content.
            k: Maximum number of results.
            label: Restrict results to this class.
            box: Left, top, right and bottom of the region to search by, in pixels.
            threshold: Minimum similarity.

        Raises:
            ClientError: If the server rejects the request or does not answer.
        """
        values: dict[str, Any] = {"k": k, "label": label, "threshold": threshold}
        values["box"] = None if box is None else ",".join(map(str, box))
        if isinstance(query, bytes | str | os.PathLike):
            content = query if isinstance(query, bytes) else Path(query).read_bytes()
            answer = self._ask("search", values, content)
        elif isinstance(query, Integral):
            answer = self.get("search", image=query, **values)
        else:
            raise TypeError(
                "query must be the id of an indexed image, an image file or its content, "
                f"got {type(query).__name__}"
            )
        if not isinstance(results := answer.get("results"), list):
            raise ClientError(f"{self.address} gave no results: it may be another server")
        return results

    def get(self, name: str, **values: Any) -> dict[str, Any]:
        """Request ``/api/NAME`` with these arguments; None values are omitted."""
        return self._ask(name, values, None)

    def _ask(self, name: str, values: dict[str, Any], body: bytes | None) -> dict[str, Any]:
        given = {key: value for key, value in values.items() if value is not None}
        request = Request(
            f"{self.address}/api/{name}?{urlencode(given)}", data=body, headers=self._headers
        )
        if body is not None:
            request.add_header("Content-Type", "application/octet-stream")
        try:
            with urlopen(request, timeout=self.timeout) as response:
                content = response.read()
        except HTTPError as error:
            with error:
                raise ClientError(_reason(error)) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            cut = body is not None and isinstance(reason, BrokenPipeError | ConnectionResetError)
            why = "the upload may be larger than it accepts" if cut else str(error)
            raise ClientError(f"{self.address} does not answer: {why}") from error
        except HTTPException as error:
            raise ClientError(f"{self.address} gave no complete answer: {error}") from error
        try:
            answer = json.loads(content)
        except (RecursionError, ValueError) as error:
            raise ClientError(f"{self.address} gave no answer in JSON: {error}") from error
        if not isinstance(answer, dict):
            raise ClientError(f"{self.address} gave no JSON object")
        return answer


def _reason(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (HTTPException, KeyError, OSError, RecursionError, TypeError, ValueError):
        return f"status {error.code}"
