"""Every unusable argument raises, and the message names it."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np
import pytest
import torch

from sumpool.evaluation import nearest_neighbors, retrieval_metrics, score_queries

X = torch.randn(20, 4)
Y = torch.arange(20) % 5
NAN = X.clone()
NAN[7, 2] = math.nan
INF = X.clone()
INF[3, 0] = -math.inf


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ((NAN, Y), ValueError, "query must be finite .*item 7 is not"),
        ((INF, Y), ValueError, "query must be finite .*item 3 is not"),
        ((X, Y, NAN, Y), ValueError, "gallery must be finite .*item 7"),
        ((X.double() * 1e200, Y), ValueError, "query must be finite .*below 1e100"),
        ((X[0], Y), ValueError, r"query must have shape \(items, dimensions\), .*got \(4,\)"),
        ((X[:0], Y[:0]), ValueError, r"query must have shape .*got \(0, 4\)"),
        ((X[:, :0], Y), ValueError, r"query must have shape .*got \(20, 0\)"),
        ((X, Y, X[:0], Y[:0]), ValueError, r"gallery must have shape .*got \(0, 4\)"),
        ((X.long(), Y), TypeError, "query must hold floating-point numbers, got torch.int64"),
        ((X.numpy(), np.array(list("abcd" * 5))), TypeError, "query_labels must hold numbers, got"),
        ((X.numpy().astype(np.longdouble), Y), TypeError, "query must hold numbers, got"),
        ((X.tolist(), Y), TypeError, "query must be a torch.Tensor or a numpy array, got list"),
        ((X, Y.tolist()), TypeError, "query_labels must be a torch.Tensor or a numpy array"),
        ((X, Y[:-1]), ValueError, r"query_labels must have shape \(20,\), got \(19,\)"),
        ((X, Y[:, None]), ValueError, r"query_labels must have shape \(20,\), got \(20, 1\)"),
        ((X, Y.float()), TypeError, "query_labels must be integers, got torch.float32"),
        ((X, Y > 2), TypeError, "query_labels must be integers, got torch.bool"),
        ((X, Y, X), ValueError, "gallery_labels must be given with gallery, got None"),
        ((X, Y, None, Y), ValueError, "gallery must be given with gallery_labels, got None"),
        ((X, Y, X[:, :3], Y), ValueError, "gallery must have the 4 dimensions of query, got 3"),
        ((X, Y, X + 1, Y[:3]), ValueError, r"gallery_labels must have shape \(20,\), got \(3,\)"),
        ((X, torch.arange(20)), ValueError, "none of the 20 queries has a match"),
        ((X, Y, X + 1, Y + 5), ValueError, "none of the 20 queries has a match"),
    ],
)
def test_unusable_embeddings_and_labels_are_refused(
    arguments: tuple[Any, ...], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        retrieval_metrics(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"ks": (0,)}, ValueError, "ks must lie between 1 and the 19 gallery items .*got 0"),
        ({"ks": (1, -2)}, ValueError, "ks must lie between 1 and the 19 .*got -2"),
        ({"ks": (20,)}, ValueError, "ks must lie between 1 and the 19 .*got 20"),
        ({"ks": (1.5,)}, TypeError, "ks must be whole numbers, got 1.5"),
        ({"ks": 3}, TypeError, "ks must be a sequence of whole numbers, got 3"),
        ({"ks": (True,)}, TypeError, "ks must be whole numbers, got True"),
        ({"max_memory": 0}, ValueError, "max_memory must be at least 1 byte, got 0"),
        ({"max_memory": 1e9}, TypeError, "max_memory must be a number of bytes, got float"),
        ({"backend": "annoy"}, ValueError, "backend must be one of auto, torch, faiss, got 'ann"),
    ],
)
def test_unusable_options_are_refused(
    options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        retrieval_metrics(X, Y, **options)


def test_a_gallery_of_others_may_be_retrieved_whole() -> None:
    found = retrieval_metrics(X, Y, X.clone(), Y, ks=(20,))
    assert found["recall_at_20"] == 1


@pytest.mark.parametrize(
    ("arguments", "options", "error", "complaint"),
    [
        ((X, None, 0), {}, ValueError, "k must lie between 1 and the 20 .*got 0"),
        ((X, None, 21), {}, ValueError, "k must lie between 1 and the 20 .*got 21"),
        ((X, None, 20), {"exclude_self": True}, ValueError, "k must lie .* the 19 .*got 20"),
        ((X, X[:9], 10), {}, ValueError, "k must lie between 1 and the 9 .*got 10"),
        ((X, X[:9], 1), {"exclude_self": True}, ValueError, "exclude_self needs a gallery that"),
        ((X, NAN, 1), {}, ValueError, "gallery must be finite"),
        ((X, None, 1), {"backend": "gpu"}, ValueError, "backend must be one of"),
    ],
)
def test_unusable_searches_are_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        nearest_neighbors(*arguments, **options)


def test_a_missing_faiss_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def without_faiss(name: str, *rest: Any) -> Any:
        if name == "faiss":
            raise ImportError("no faiss here")
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_faiss)
    with pytest.raises(ImportError, match=r"install sumpool\[faiss\], or choose backend='torch'"):
        retrieval_metrics(X, Y, backend="faiss")


@pytest.mark.parametrize("as_given", [lambda x: x, lambda x: x.numpy(), lambda x: x[:]])
def test_the_query_set_is_no_gallery(as_given: Any) -> None:
    vectors, labels = torch.randn(6, 3), torch.arange(6) % 2
    with pytest.raises(ValueError, match="gallery must be left out where it is the query set"):
        retrieval_metrics(vectors, labels, as_given(vectors), labels)
    retrieval_metrics(vectors[:3], labels[:3], vectors[3:], labels[3:], ks=(1,))
    backwards = vectors.numpy()[::-1]
    retrieval_metrics(backwards[:3], labels[:3], backwards[3:], labels[3:], ks=(1,))
    one, other = vectors[:3].tolist(), vectors[3:].tolist()
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor or a numpy array"):
        retrieval_metrics(one, labels[:3], other, labels[3:])  # type: ignore[arg-type]


def test_a_depth_is_named_as_such() -> None:
    with pytest.raises(ValueError, match="depth must lie between 1 and the 19"):
        score_queries(X, Y, depth=99)


@pytest.mark.filterwarnings("error")
def test_arrays_may_be_read_only_or_of_another_byte_order() -> None:
    array = X.numpy().astype(">f4")
    array.flags.writeable = False
    assert retrieval_metrics(array, Y.numpy(), ks=(1,)) == retrieval_metrics(X, Y, ks=(1,))
