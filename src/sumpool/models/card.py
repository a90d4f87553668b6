"""Model cards: what a model was trained on and how well it retrieves."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import timm
import yaml
from PIL import Image
from scipy.special import ndtri

from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.backbones import BACKBONES
from sumpool.models.config import EmbedderConfig
from sumpool.models.packaged import PACKAGED
from sumpool.report.run.files import Run, read_run
from sumpool.report.run.labels import SCORES, headline, metric_table, score_names, summary
from sumpool.system.files import write_atomic

#: Files of the card, in the folder of the model.
CARD, WEIGHTS = "README.md", "weights.jpg"
#: Side of an image in the picture of the weights, in pixels, and the maximum number of images.
SIDE, SHOWN = 160, 6

#: Training options that the card lists in addition to the run's summary.
_OPTIONS = ("batch_size", "images_per_class", "optimizer.lr", "optimizer.schedule", "crop")


def write_card(
    folder: Path,
    config: EmbedderConfig,
    preprocessing: Preprocessing,
    *,
    run: str | Path | None = None,
) -> None:
    """Write README.md and, if the run has pooling weights, their picture to a model's folder.

    Args:
        folder: Folder of the model.
        config: Configuration of the model.
        preprocessing: Preprocessing of its images.
        run: Folder of the run that trained it; None omits data and scores, and the card says so.

    Raises:
        StoreError: If ``run`` holds no run, a file in it is damaged, or a file cannot be written.
    """
    read = None if run is None else read_run(Path(run))
    picture = None if read is None else weights_picture(read)
    if picture is not None:
        write_atomic(folder / WEIGHTS, picture)
    text = model_card(config, preprocessing, read, pictured=picture is not None)
    write_atomic(folder / CARD, text.encode())


def model_card(
    config: EmbedderConfig, preprocessing: Preprocessing, run: Run | None, *, pictured: bool
) -> str:
    """Return the card in Markdown, with YAML front matter for the Hugging Face Hub."""
    license_name, origin = starting_weights(config)
    head: dict[str, Any] = {
        "library_name": "sumpool",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["sumpool", "metric-learning", "image-retrieval", config.pooling],
    }
    if license_name:
        head["license"] = license_name
    if run is not None and run.evaluations:
        head["model-index"] = [_index(run)]
    view = preprocessing
    size = "as it is" if view.resize is None else f"with its shorter side at {view.resize} pixels"
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---",
        f"# {config.backbone}, {config.pooling} pooling, {config.embedding_size} dimensions",
        "Images of one class lie close together under this model, those of classes it was never "
        "trained on included. Compare embeddings by their cosine.",
        "## Use\n\n```python\nimport sumpool\n\n"
        'model = sumpool.Embedder.from_pretrained("hf://organization/name")  # or a folder\n'
        'vectors = model.encode(["one.jpg", "two.jpg"])\n'
        "print(model.similarity(vectors))\n```",
        f"An image is taken {size} (bilinear, antialiased), the central {view.crop}×{view.crop} "
        f"pixels are cut out, and colors, from 0 to 1, are normalized by mean "
        f"{_numbers(view.mean)} and deviation {_numbers(view.std)}.",
        f"## Training\n\n{_training(run)}",
        f"## Scores\n\n{_scores(run)}",
    ]
    if pictured:
        parts.append(
            "## Where it looks\n\nThe weights of the pooling, bright where an image counts most.\n"
            f"\n![Images above, their pooling weights below]({WEIGHTS})"
        )
    parts.append(f"## License\n\n{origin}")
    return "\n\n".join(parts) + "\n"


def starting_weights(config: EmbedderConfig) -> tuple[str | None, str]:
    """Return the license of the initial weights, and a sentence about them.

    The license is None for random weights and "other" if it is unknown.
    """
    if config.weights == "none":
        return None, "Training started from random weights, which carry no license."
    if config.weights == "packaged":
        packaged = PACKAGED[config.backbone]
        return packaged.license, (
            f"Training started from the ImageNet weights in the package {packaged.package}, "
            f"which are under {packaged.license}."
        )
    found = None
    if config.weights == "timm" and config.backbone not in BACKBONES:
        found = getattr(timm.get_pretrained_cfg(config.backbone), "license", None)
    if found:
        return str(found), (
            f"Training started from timm's weights of {config.backbone}, which are under {found}."
        )
    return "other", (
        f"Training started from weights of {config.backbone} whose license is not known: find out "
        "where they come from before you pass the model on."
    )


def interval(share: float, count: float) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share among ``count`` queries.

    Queries of one class are correlated, so an interval over classes would be wider.

    Example:
        >>> low, high = interval(0.5, 100)
        >>> round(low, 3), round(high, 3)
        (0.404, 0.596)
    """
    z = float(ndtri(0.975))
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (share * (1 - share) / count + (z / (2 * count)) ** 2) ** 0.5
    return middle - half, middle + half


def weights_picture(run: Run) -> bytes | None:
    """Draw gallery images above their pooling weights, as JPEG; None if missing or all equal."""
    # Imported here because only drawing needs matplotlib.
    from sumpool.report.overlays import scale_top
    from sumpool.report.run.weight_maps import is_flat, weight_maps

    gallery = run.gallery
    if gallery is None or not gallery.weights or is_flat(gallery.weights.values()):
        return None
    maps = weight_maps(gallery, gallery.sample, scale_top(gallery.weights.values()))[:SHOWN]
    if not maps:
        return None
    sheet = Image.new("RGB", (SIDE * len(maps), 2 * SIDE), "white")
    for column, it in enumerate(maps):
        for row, jpeg in enumerate((it.jpeg, it.heat)):
            tile = Image.open(io.BytesIO(jpeg)).convert("RGB").resize((SIDE, SIDE))
            sheet.paste(tile, (column * SIDE, row * SIDE))
    buffer = io.BytesIO()
    sheet.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _training(run: Run | None) -> str:
    if run is None:
        return "The card was written without the run that trained the model."
    # Without the command, which may contain private paths.
    options = {name: run.option(name) for name in _OPTIONS}
    listed = ", ".join(f"`{name} {it}`" for name, it in options.items() if it is not None)
    text = f"{_escaped(summary(run))} {_protocol(run)}"
    return text + (f"\n\nOptions: {listed}." if listed else "")


def _protocol(run: Run) -> str:
    """Say what selected the model, and which classes of the evaluations it was trained on."""
    if run.option("stop.keep") == "last":
        selected = "It is the model of the last step; no scores selected it."
    else:
        selected = f"The model was selected on the {run.selection} set."
    seen = run.facts.get("trained_classes")
    if not seen:  # earlier versions did not record it
        return selected
    known = [f"{it} of the {name} set" for name, it in seen.items() if it]
    if not known:
        return f"{selected} It was not trained on any class of the {' or the '.join(seen)} set."
    return f"{selected} Classes that it was also trained on: {', '.join(known)}."


def _scores(run: Run | None) -> str:
    if run is None or not run.evaluations:
        return "None were recorded."
    lines = [headline(run)]
    for name in score_names(run):
        scores = run.scores(name) or {}
        if "precision_at_1" in scores and scores.get("queries"):
            low, high = interval(scores["precision_at_1"], scores["queries"])
            lines.append(
                f"P@1 on {name}: {100 * scores['precision_at_1']:.1f} %, 95 % interval over "
                f"queries {100 * low:.1f} to {100 * high:.1f} % (Wilson)."
            )
    return "\n\n".join([*map(_escaped, lines), metric_table(run).markdown()])


def _index(run: Run) -> dict[str, Any]:
    """The scores in the Hub's model-index format."""
    name = str(run.facts.get("data_set") or "unknown")
    results = [
        {
            "task": {"type": "image-feature-extraction", "name": "Image retrieval"},
            "dataset": {"type": name, "name": name, "split": split},
            "metrics": [
                {"type": metric, "name": label, "value": round(scores[metric], 4)}
                for metric, label in reversed(SCORES.items())
                if metric in scores
            ],
        }
        for split, scores in run.evaluations.items()
    ]
    return {"name": f"{run.option('backbone')}-{run.option('pool')}", "results": results}


def _numbers(values: tuple[float, ...]) -> str:
    return f"({', '.join(f'{value:.4g}' for value in values)})"


def _escaped(text: str) -> str:
    """Escape the special characters of Markdown."""
    for sign in "\\`*_<>[]#|":
        text = text.replace(sign, f"\\{sign}")
    return text
