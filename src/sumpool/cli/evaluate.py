"""``sumpool evaluate``: measure the retrieval metrics of a model on any labeled images."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_image_options, add_overwrite, check_data, count, verb_parser
from sumpool.training.values.choices import check_choices

SUMMARY = "measure the retrieval metrics of a model on labeled images"

DESCRIPTION = """\
Embed labeled images with a trained model and measure how well images retrieve others of their
class.

P@1 is the share of queries whose nearest image is of their class, and R@K the share with such an
image among the K nearest. MAP@R is the mean average precision of the R nearest, where R is the
number of other images of the class. Queries whose class has no other image are counted, but not
scored.

examples:
  sumpool evaluate runs/photos --data more-photos/
  sumpool evaluate runs/cub --data CUB_200_2011 --split test --out results/cub
  sumpool evaluate runs/shop --data In-shop --split query --gallery gallery
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool evaluate MODEL --data FOLDER [options]")
    add_image_options(parser)
    parser.add_argument(
        "--gallery", metavar="SPLIT", help="split to search in (default: that of the queries)"
    )
    parser.add_argument(
        "--ks",
        type=count,
        nargs="+",
        default=[1, 2, 4, 8],
        metavar="K",
        help="values of K for R@K (default: 1 2 4 8)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="also write metrics and embeddings to DIR"
    )
    add_overwrite(parser)
    return parser


def run(options: Namespace) -> int:
    """Embed images, and print or write their metrics."""
    check_choices("format", options.format)
    check_data(options.data)
    from sumpool.cli.inputs import open_images, open_model
    from sumpool.cli.metrics_table import metrics_table
    from sumpool.evaluation import evaluate_retrieval, write_evaluation
    from sumpool.evaluation.evaluate import evaluation_files
    from sumpool.system.files import refuse_overwriting

    if options.out is not None:
        files = evaluation_files(options.out, gallery=True)  # those of before would be deleted
        refuse_overwriting(files, overwrite=options.overwrite)
    model, device = open_model(options)
    queries = open_images(options, model, device, options.split)
    gallery = None
    if options.gallery is not None:
        gallery = open_images(options, model, device, options.gallery)
    evaluation = evaluate_retrieval(
        model,
        queries,
        gallery,
        ks=options.ks,
        batch_size=options.batch_size,
        device=device,
        progress=True,
    )
    try:
        if options.out is not None:
            others = None if gallery is None else gallery.dataset
            write_evaluation(options.out, evaluation, queries.dataset, others)
    finally:
        print(metrics_table({options.split: evaluation.metrics}).text())
    if options.out is not None:
        print(f"\nresults: {options.out}")
    return 0
