"""``sumpool pretrain``: train a backbone for small images by classification."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import verb_parser
from sumpool.training.pretrain_config import PretrainConfig
from sumpool.training.values.limits import PRETRAINING, check_limits

SUMMARY = "train a backbone for small images by classification, to start from"

DESCRIPTION = """\
Train a small residual network to classify small images, and keep it without its classifier.

The weights, OUT/backbone.safetensors, are what `sumpool train --weights` and the studies on
CIFAR collages start from. An interrupted pretraining resumes after its last complete epoch;
a finished one is left as it is.

examples:
  sumpool pretrain --data cifar-100-python --out runs/resnet20
  sumpool train --data cifar-100-python --format cifar-collage --backbone resnet20 --crop 64 \\
      --weights runs/resnet20/backbone.safetensors --cache ram
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool pretrain --data FOLDER [options]")
    parser.add_argument("--config", action="config", metavar="FILE", help="YAML file with options")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/pretrained"),
        metavar="DIR",
        help="folder of the weights (default: runs/pretrained)",
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
    # Imported here: torch takes seconds, which `--help` need not wait for.
    from sumpool.system.documents import load_json
    from sumpool.training.pretraining import FACTS, pretrain

    weights = pretrain(PretrainConfig(**values), out)
    facts = load_json(out / FACTS)
    print(f"accuracy on test images: {facts['test_accuracy']:.1%}\nweights: {weights}")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt keeps."""
    return f"the same command resumes after the last complete epoch kept in {options.out}, if any"
