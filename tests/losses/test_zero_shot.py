"""The zero-shot loss: halves, ridge fits, gradients, and what it cannot be computed from."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from losses.batches import CLASSES, LABELS, attributes_of
from losses.naive_losses import zero_shot
from sumpool.losses import ZeroShotLoss, class_halves, ridge_fit, zero_shot_loss
from sumpool.losses.zero_shot import standardized

SIZE = 5
several_classes = st.lists(st.integers(0, CLASSES - 1), min_size=2, max_size=14).filter(
    lambda labels: len(set(labels)) > 1
)


def class_embeddings(seed: int = 7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(CLASSES, SIZE, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("m", [1, 12])
@pytest.mark.parametrize(
    ("ridge", "scale", "halves"),
    [(0.05, 9.5, "appearance"), (1.0, 1.0, "label")],
)
def test_the_loss_equals_a_computation_image_by_image(
    labels: list[int], m: int, ridge: float, scale: float, halves: str
) -> None:
    z, classes = attributes_of(labels, m).requires_grad_(), class_embeddings().requires_grad_()
    got = zero_shot_loss(z, torch.tensor(labels), classes, ridge, scale, halves, "sum")
    order = sorted(set(labels)) if halves == "label" else list(dict.fromkeys(labels))
    expected = zero_shot(z, labels, classes, ridge, scale, order)
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)
    found, wanted = (torch.autograd.grad(it, [z, classes]) for it in (got, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


def authors_zero_shot(
    z: torch.Tensor, labels: list[int], classes: torch.Tensor, first: list[int], second: list[int]
) -> float:
    """One mean over both halves of the batch, logits times 9.5, a fit by an explicit inverse."""
    terms = []
    for fitted, predicted in ((second, first), (first, second)):
        x, y = z[fitted], torch.stack([classes[labels[i]] for i in fitted])
        gram = torch.tensor([[float(a @ b) for b in x] for a in x], dtype=z.dtype)
        inverse = torch.linalg.inv(gram + 0.05 * torch.eye(len(x), dtype=z.dtype))
        w = x.T @ inverse @ y
        for i in predicted:
            scores = [9.5 * float(c @ (w.T @ z[i])) for c in classes]
            share = math.exp(scores[labels[i]]) / sum(math.exp(it) for it in scores)
            terms.append(-math.log(share + 1e-16))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("m", [3, 9])
def test_halves_scale_and_mean_are_those_of_the_authors_code(m: int) -> None:
    classes = 0.3 * class_embeddings()  # of a length at which their 1e-16 plays no part
    # Every other image, of batches that take one image of each class at a time.
    labels = [0, 3, 1, 5] * 3
    z, even, odd = attributes_of(labels, m), list(range(0, 12, 2)), list(range(1, 12, 2))
    expected = authors_zero_shot(z, labels, classes, even, odd)
    got = zero_shot_loss(z, torch.tensor(labels), classes)
    assert float(got) == pytest.approx(expected, abs=1e-6)
    # The first and the second half, of batches that are sorted by class.
    order = sorted(range(12), key=lambda i: (labels[i] not in (0, 1), labels[i]))
    z, labels = z[order], [labels[i] for i in order]
    sides = list(range(6)), list(range(6, 12))
    assert authors_zero_shot(z, labels, classes, *sides) == pytest.approx(expected, abs=1e-9)
    # The papers add the two means: twice as much, where the halves are equal.
    labels = [0, 3, 1, 5] * 3
    z = attributes_of(labels, m)
    total = zero_shot_loss(z, torch.tensor(labels), classes, reduction="sum")
    assert float(total) == pytest.approx(2 * expected, abs=1e-6)


@pytest.mark.process
@pytest.mark.parametrize("m", [2, 9])
def test_gradients_agree_with_finite_differences(m: int) -> None:
    labels = next(iter(LABELS.values()))
    z, classes = attributes_of(labels, m).requires_grad_(), class_embeddings().requires_grad_()

    def loss(z: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return zero_shot_loss(z, torch.tensor(labels), classes)

    assert torch.autograd.gradcheck(loss, (z, classes))


def test_gradients_flow_through_the_fit_and_through_the_targets() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    z, classes = attributes_of(labels.tolist()).requires_grad_(), class_embeddings()
    # Of the classes, 0 is fitted and 1 predicted, then the other way round; 2 to 5 are logits only.
    classes.requires_grad_()
    zero_shot_loss(z, labels, classes).backward()
    assert z.grad is not None
    assert (z.grad.abs().sum(1) > 0).all()
    assert classes.grad is not None
    assert (classes.grad.abs().sum(1) > 0).all()


@given(several_classes, st.sampled_from(["appearance", "label"]))
def test_halves_share_no_class_and_are_even(labels: list[int], by: str) -> None:
    second = class_halves(torch.tensor(labels), by).tolist()
    one = {label for label, half in zip(labels, second, strict=True) if not half}
    two = {label for label, half in zip(labels, second, strict=True) if half}
    assert not one & two
    assert len(one) - len(two) in (0, 1)


@given(several_classes, st.randoms(use_true_random=False))
def test_by_label_the_order_of_the_batch_does_not_matter(labels: list[int], random: object) -> None:
    order = list(range(len(labels)))
    random.shuffle(order)  # type: ignore[attr-defined]
    z, y, classes = attributes_of(labels), torch.tensor(labels), class_embeddings()
    z.requires_grad_()
    assert torch.equal(class_halves(y, "label")[order], class_halves(y[order], "label"))
    straight = zero_shot_loss(z, y, classes, halves="label")
    shuffled = zero_shot_loss(z[order], y[order], classes, halves="label")
    torch.testing.assert_close(straight, shuffled, rtol=1e-9, atol=1e-9)
    found, wanted = (torch.autograd.grad(it, z)[0] for it in (shuffled, straight))
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-9)


def test_by_appearance_a_batch_of_all_classes_is_split_in_many_ways() -> None:
    generator = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(50):
        labels = torch.randperm(6, generator=generator)
        seen.add(tuple(sorted(labels[class_halves(labels)].tolist())))
    assert len(seen) > 10
    by_label = {
        tuple(sorted(labels[class_halves(labels, "label")].tolist()))
        for labels in (torch.randperm(6, generator=generator) for _ in range(50))
    }
    assert by_label == {(1, 3, 5)}


def test_standardized_attributes_are_centered_and_of_length_one() -> None:
    z = standardized(attributes_of([0, 1, 2, 3, 4, 5], m=7))
    torch.testing.assert_close(z.mean(0), torch.zeros(7, dtype=z.dtype), rtol=0, atol=1e-12)
    assert float(z.square().sum(1).mean()) == pytest.approx(1)
    assert standardized(torch.full((4, 3), 0.25)).isfinite().all()


def test_a_ridge_hides_what_tells_attributes_apart_unless_they_are_standardized() -> None:
    # Shares of 1 over many prototypes: a large mean, small differences. Classes are the corners of
    # a plane, and a map that holds on one half of them holds on the other.
    generator = torch.Generator().manual_seed(0)
    corners = torch.randn(16, 2, generator=generator, dtype=torch.float64)
    basis = torch.randn(2, 64, generator=generator, dtype=torch.float64)
    z = 1 / 64 + 1e-3 * (corners @ basis)
    labels = torch.randperm(16, generator=generator)
    classes = F.normalize(corners, dim=-1)[labels.argsort()]
    plain = zero_shot_loss(z, labels, classes)
    fair = zero_shot_loss(standardized(z), labels, classes)
    uniform = math.log(16)
    assert float(plain) > uniform - 0.25  # no better than guessing
    assert float(fair) < uniform - 1


def test_unit_class_embeddings_do_not_depend_on_their_length() -> None:
    z, labels = attributes_of([0, 1, 2, 3]), torch.tensor([0, 1, 2, 3])
    loss = ZeroShotLoss(CLASSES, SIZE, unit=True).double()
    before = loss(z, labels)
    with torch.no_grad():
        loss.class_embeddings.mul_(7)
    torch.testing.assert_close(loss(z, labels), before)


def test_the_mean_of_the_halves_is_half_of_their_sum() -> None:
    attributes = torch.rand(6, 4).softmax(-1)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    whole, half = (ZeroShotLoss(3, 8, reduction=it)(attributes, labels) for it in ("sum", "mean"))
    torch.testing.assert_close(half, whole / 2)
    with pytest.raises(ValueError, match=r"reduction must be one of .*, got 'max'"):
        ZeroShotLoss(3, 8, reduction="max")


def test_an_unknown_order_of_halves_is_refused() -> None:
    match = r"must be one of \('appearance', 'label'\), got 'random'"
    with pytest.raises(ValueError, match=match):
        ZeroShotLoss(CLASSES, halves="random")
    with pytest.raises(ValueError, match=match):
        class_halves(torch.tensor([0, 1]), "random")


@given(st.integers(1, 12), st.integers(1, 12), st.floats(1e-3, 10.0), st.integers(0, 99))
def test_both_forms_of_the_ridge_fit_agree(b: int, m: int, ridge: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(b, m, generator=generator, dtype=torch.float64).softmax(-1).requires_grad_()
    Y = torch.randn(b, 3, generator=generator, dtype=torch.float64).requires_grad_()
    fits = {form: ridge_fit(Z, Y, ridge, form) for form in ("attributes", "images", "auto")}
    gradients = {form: torch.autograd.grad(W.square().sum(), [Z, Y]) for form, W in fits.items()}
    smaller = "attributes" if m <= b else "images"
    assert torch.equal(fits["auto"], fits[smaller])
    torch.testing.assert_close(fits["attributes"], fits["images"], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(gradients["attributes"], gradients["images"], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("form", ["attributes", "images"])
def test_the_ridge_fit_is_a_minimum(form: str) -> None:
    Z, Y = attributes_of([0] * 6, m=4), torch.randn(6, 3, dtype=torch.float64)
    W = ridge_fit(Z, Y, 0.05, form).requires_grad_()
    ((Z @ W - Y).square().sum() + 0.05 * W.square().sum()).backward()
    torch.testing.assert_close(W.grad, torch.zeros_like(W), rtol=0, atol=1e-12)


def test_classes_that_attributes_predict_cost_little() -> None:
    # A line: class embeddings are a linear map of the attributes, and large enough for a softmax.
    angles = torch.linspace(0, 2 * math.pi, 9, dtype=torch.float64)[:8]
    z = torch.stack([angles.cos(), angles.sin()], 1)
    labels = torch.arange(8)
    assert float(zero_shot_loss(z, labels, 5 * z)) < 0.01
    assert float(zero_shot_loss(z, labels, 5 * z.flip(1)[torch.randperm(8)])) > 1


def test_the_layer_is_the_function_with_learned_embeddings() -> None:
    labels = LABELS["mixed up"]
    loss = ZeroShotLoss(CLASSES, SIZE, ridge=0.2, scale=3.0).double()
    z = attributes_of(labels)
    expected = zero_shot_loss(z, torch.tensor(labels), loss.class_embeddings, 0.2, 3.0)
    assert torch.equal(loss(z, torch.tensor(labels)), expected)
    assert [name for name, _ in loss.named_parameters()] == ["class_embeddings"]
    assert loss.proxy_parameters() == []
    assert "ridge=0.2" in repr(loss)


def test_class_embeddings_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first, second, other = (ZeroShotLoss(50, seed=seed).class_embeddings for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.shape == (50, 128)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert float(first.detach().std()) == pytest.approx(math.sqrt(2 / 50), rel=0.05)


def test_training_separates_classes_that_attributes_separate() -> None:
    labels = torch.arange(12) % 6
    z = (3 * torch.eye(6)[labels] + torch.rand(12, 6)).softmax(-1)
    loss = ZeroShotLoss(6, 8)
    adam = torch.optim.Adam(loss.parameters(), lr=0.02)
    before = float(loss(z, labels).detach())
    for _ in range(60):
        adam.zero_grad()
        loss(z, labels).backward()
        adam.step()
    assert float(loss(z, labels).detach()) < before


@pytest.mark.parametrize("labels", [[3], [2, 2, 2, 2]])
def test_fewer_than_two_classes_are_refused(labels: list[int]) -> None:
    match = rf"needs images of at least two classes in a batch, got {len(labels)} of class"
    with pytest.raises(ValueError, match=match):
        zero_shot_loss(attributes_of(labels), torch.tensor(labels), class_embeddings())


@pytest.mark.parametrize("label", [-1, 6])
def test_labels_without_a_class_embedding_are_refused(label: int) -> None:
    with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.5 .*, got {label}"):
        zero_shot_loss(attributes_of([0, 1]), torch.tensor([0, label]), class_embeddings())


def test_what_the_loss_cannot_use_is_refused() -> None:
    z, y, classes = attributes_of([0, 1]), torch.tensor([0, 1]), class_embeddings()
    with pytest.raises(ValueError, match=r"ridge must be a positive finite number, got 0"):
        zero_shot_loss(z, y, classes, ridge=0)
    with pytest.raises(ValueError, match=r"scale must be a positive finite number, got nan"):
        ZeroShotLoss(3, scale=math.nan)
    with pytest.raises(ValueError, match=r"num_classes must be an integer of at least 1, got 0"):
        ZeroShotLoss(0)
    with pytest.raises(ValueError, match=r"embedding_size must be an integer of at least 1"):
        ZeroShotLoss(3, 0)
    with pytest.raises(ValueError, match=r"attributes must have shape \(b, size\)"):
        zero_shot_loss(z[0], y, classes)
    with pytest.raises(ValueError, match=r"labels must have shape \(2,\)"):
        zero_shot_loss(z, y[:1], classes)
    with pytest.raises(TypeError, match=r"labels must be a tensor of integers"):
        zero_shot_loss(z, y.double(), classes)
    with pytest.raises(ValueError, match=r"form must be one of .*, got 'dual'"):
        ridge_fit(z, z, 0.05, "dual")


def test_attributes_that_are_not_numbers_show_in_the_loss() -> None:
    z = attributes_of([0, 0, 1, 1])
    z[0, 0] = math.nan
    assert zero_shot_loss(z, torch.tensor([0, 0, 1, 1]), class_embeddings()).isnan()


def test_equal_attributes_in_half_precision_give_a_number() -> None:
    loss = ZeroShotLoss(num_classes=5, embedding_size=4, standardize=True)
    attributes = torch.full((6, 3), 1 / 3)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    half, whole = loss(attributes.half(), labels), loss(attributes, labels)
    assert half.item() == pytest.approx(whole.item(), rel=1e-3)
