"""``sumpool pretrain``: train a backbone for small images by classification."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_config, verb_parser
from sumpool.training.pretrain_config import PretrainConfig
from sumpool.training.values.limits import PRETRAINING, check_limits

SUMMARY = "pretrain a backbone for small images by classification"

DESCRIPTION = """\
Train a small residual network to classify small images, and save it without its classifier.

`sumpool train --weights` and the studies on CIFAR collages start from the saved weights,
DIR/backbone.safetensors. An interrupted command resumes after the last complete epoch; a finished
one changes nothing.

examples:
  sumpool pretrain --data cifar-100-python --out runs/resnet20
  sumpool train --data cifar-100-python --format cifar-collage --backbone resnet20 --crop 64 \\
      --weights runs/resnet20/backbone.safetensors --cache ram
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool pretrain --data FOLDER [options]")
    add_config(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/pretrained"),
        metavar="DIR",
        help="folder for the weights (default: runs/pretrained)",
    )
    parser.add_class_arguments(PretrainConfig, as_group=False)
    return parser


def run(options: Namespace) -> int:
    """Pretrain, then print the accuracy and the path of the weights."""
    values = options.as_dict()
    out = values.pop("out")
    for name in ("config", "__path__"):
        values.pop(name, None)
    check_limits(values, PRETRAINING)
    from sumpool.system.documents import load_json
    from sumpool.training.pretraining import FACTS, pretrain

    weights = pretrain(PretrainConfig(**values), out)
    facts = load_json(out / FACTS)
    print(f"accuracy on test images: {facts['test_accuracy']:.1%}\nweights: {weights}")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt keeps."""
    return f"the same command resumes after the last complete epoch kept in {options.out}, if any"
