"""The fused head against materialised logits, torch's autograd, FSDP2's view of it and compile."""

import shutil

import pytest
import torch
from torch import nn

from carbon.losses import fused, head_loss, log_likelihoods, nucleotide_loss
from carbon.losses.objectives import CE, FNS
from tests.helpers.objectives import ALL_THREE, blend, random_head

N, D = 50, 24


@pytest.fixture(scope="module")
def case():
    hidden, weight, kmers, known = random_head(N, D)
    known[:10] = True
    return hidden, weight, kmers, known


def run(form, case, dtype=torch.float64, **options):
    """Return sums and gradients of a loss that is scaled, as accumulation does."""
    hidden, weight = (part.to(dtype).clone().requires_grad_() for part in case[:2])
    sums = form(hidden, weight, *case[2:], **options)
    (3 * sums.loss).backward()
    return [part.detach() for part in sums], hidden.grad, weight.grad


def materialised(hidden, weight, kmers, known, objective, first_kmer, support):
    logits = hidden @ weight.T
    likelihoods = log_likelihoods(
        logits, kmers, first_kmer=first_kmer, support=support, uniform=objective.uniform > 0
    )
    return nucleotide_loss(likelihoods, known, objective)


@pytest.mark.parametrize(
    ("objective", "support", "chunk_tokens"),
    [
        (CE, "vocabulary", None),
        (blend(0.4), "kmers", 64),
        (FNS, "vocabulary", 50),
        (ALL_THREE, "kmers", 1),
        (ALL_THREE, "vocabulary", 7),
    ],
)
def test_it_equals_materialised_logits(case, support, objective, chunk_tokens):
    common = {"objective": objective, "first_kmer": 32, "support": support}
    expected = run(materialised, case, **common)
    found = run(head_loss, case, chunk_tokens=chunk_tokens, **common)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_bf16_arguments_are_summed_in_fp32(case):
    """Against fp64 on the same rounded arguments: only the products are in bf16."""
    rounded = tuple(part.bfloat16().double() for part in case[:2]) + case[2:]
    options = {"objective": FNS, "first_kmer": 32, "support": "kmers"}
    sums, grad_hidden, grad_weight = run(head_loss, rounded, torch.bfloat16, **options)
    expected, exact_hidden, exact_weight = run(materialised, rounded, **options)
    assert sums[0].dtype == sums[2].dtype == torch.float32
    assert grad_hidden.dtype == grad_weight.dtype == torch.bfloat16
    assert sums[0].item() == pytest.approx(expected[0].item(), rel=3e-3)
    for found, exact in ((grad_hidden, exact_hidden), (grad_weight, exact_weight)):
        error = (found.double() - exact).norm() / exact.norm()
        assert error < 0.02


@pytest.mark.parametrize("needed", [(), (0,), (1,), (0, 1)])
def test_only_the_gradients_that_are_needed_are_computed(case, needed, monkeypatch):
    """A frozen head (or a loss to report alone) must not pay for a gradient of its size."""
    leaves = [part.clone().requires_grad_(i in needed) for i, part in enumerate(case[:2])]
    sizes = []

    def watch(*arguments):
        outputs = kept(*arguments)
        sizes.extend(len(grad) for grad in outputs[1:])
        return outputs

    kept = fused._outputs
    monkeypatch.setattr(fused, "_outputs", watch)
    sums = head_loss(*leaves, *case[2:], FNS, first_kmer=32)
    assert sizes == [N if 0 in needed else 0, 4096 if 1 in needed else 0]
    expected = materialised(*(part.clone() for part in case[:2]), *case[2:], FNS, 32, "kmers")
    torch.testing.assert_close(sums.loss.detach(), expected.loss)
    assert sums.loss.requires_grad == bool(needed)
    if needed:
        sums.loss.backward()
    assert [leaf.grad is not None for leaf in leaves] == [i in needed for i in (0, 1)]


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.bfloat16, 1 / 257), (torch.float16, 65536.0)],
)
def test_a_loss_may_be_scaled_by_anything(case, dtype, scale):
    """The scale is not rounded to the arguments' dtype, and fp16 does not overflow before it."""
    hidden, weight = (part.to(dtype).requires_grad_() for part in case[:2])
    small = 1e-7 if scale > 1 else 1.0  # what loss scaling is for: a loss with small derivatives
    (small * scale * head_loss(hidden, weight, *case[2:], FNS, first_kmer=32).loss).backward()
    exact = [part.to(dtype).double().requires_grad_() for part in case[:2]]
    (small * scale * materialised(*exact, *case[2:], FNS, 32, "kmers").loss).backward()
    for found, expected in zip((hidden, weight), exact, strict=True):
        ratio = (found.grad.double() * expected.grad).sum() / expected.grad.square().sum()
        # A gradient in bf16 is rounded before the scale and after it: up to 2 ** -9 for all of it.
        assert abs(float(ratio) - 1) < (2**-9 if scale == 1 / 257 else 6e-4)


def test_twice_through_one_graph(case):
    hidden = case[0].clone().requires_grad_()
    loss = head_loss(hidden, *case[1:], FNS, first_kmer=32).loss
    (first,) = torch.autograd.grad(3 * loss, hidden, retain_graph=True)
    (second,) = torch.autograd.grad(3 * loss, hidden)
    assert torch.equal(first, second)
    again = head_loss(hidden, *case[1:], FNS, first_kmer=32).loss
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(again, hidden, create_graph=True)


def test_under_autocast_only_the_products_are_in_bf16(case):
    hidden, weight = (part.float().requires_grad_() for part in case[:2])
    rest = (*case[2:], blend(0.4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = head_loss(hidden, weight, *rest, first_kmer=32)
        logits = hidden.detach().bfloat16() @ weight.detach().bfloat16().T
        of_logits = log_likelihoods(logits, case[2], first_kmer=32)
    sums.loss.backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
    rounded = [part.detach().bfloat16() for part in (hidden, weight)]
    expected = head_loss(*rounded, *rest, first_kmer=32)
    torch.testing.assert_close(sums.loss.detach(), expected.loss)
    outside = log_likelihoods(logits, case[2], first_kmer=32)
    torch.testing.assert_close(of_logits, outside, rtol=0, atol=0)


def test_no_token_at_all(case):
    hidden, weight, kmers, known = case
    sums = head_loss(hidden[:0], weight.clone().requires_grad_(), kmers[:0], known[:0], FNS)
    sums.loss.backward()
    assert (sums.loss, sums.num_tokens) == (0, 0)


HALF = blend(0.5)  # a constant to `torch.compile`


class Tied(nn.Module):
    """A network whose embedding is its head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(128 + 4096, D)
        self.layer = nn.Linear(D, D)

    def forward(self, ids, kmers, known, fused: bool):
        hidden = self.layer(self.embedding(ids)).tanh()
        if fused:
            weight = self.embedding.weight
            return head_loss(hidden, weight, kmers, known, HALF, first_kmer=128).loss
        logits = hidden @ self.embedding.weight[128:].T
        return nucleotide_loss(log_likelihoods(logits, kmers), known, HALF).loss


def gradients(network, *arguments):
    network.zero_grad()
    network(*arguments).backward()
    return [p.grad.clone() for p in network.parameters()]


def test_tied_weights_get_both_gradients(case):
    network, (ids, known) = Tied(), (case[2] + 128, case[3])
    found = gradients(network, ids, case[2], known, True)
    torch.testing.assert_close(found, gradients(network, ids, case[2], known, False))


@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.nightly)]
)
def test_compile_takes_it_as_one_operator(case, backend):
    """`fullgraph` raises at any break."""
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("inductor needs a C++ compiler")
    network, (ids, known) = Tied(), (case[2] + 128, case[3])
    compiled = torch.compile(network, backend=backend, fullgraph=True)
    found = gradients(compiled, ids, case[2], known, True)
    torch.testing.assert_close(found, gradients(network, ids, case[2], known, True))


def test_the_operator_is_well_formed(case):
    """torch's own checks: schema, fake tensors, autograd registration, dynamic shapes."""
    factors = torch.rand(N), torch.rand(N, 6)
    hidden, weight, kmers, known = case
    arguments = (hidden.clone().requires_grad_(), weight[:4096].clone().requires_grad_())
    torch.library.opcheck(
        torch.ops.carbon.head_loss.default,
        (*arguments, kmers, known, *factors, 0.5, 0.4, 0.1, 0, False, 16, True, True),
    )
