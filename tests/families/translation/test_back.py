"""Back-translation: what the model translates is what it learns to translate from."""

import numpy as np
import pytest
import torch
from exact_options import DETERMINISTIC
from safetensors.torch import load_file

from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.batching import draw, make_batch, zero_weights
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import UsageError
from unitk.families.translation.back import unpack
from unitk.families.translation.languages import BackTranslationConfig, Translation
from unitk.slots import BORN, NEVER
from unitk.training.loop import Trainer, train

BACK = "--task back_translation"


@pytest.fixture
def run(start):
    """A model, its criterion, and a packed batch of texts of both languages."""
    trainer = Trainer(start(f"{BACK} --arch.init-std 0.3 --device cpu", "text0", "text1"))
    examples = trainer.data.train
    drawn = [draw(examples, 1, 0, i) for i in (3, 70, 4, 100, 5, 6, 7, 119)]
    # so that outputs end, at different lengths
    with torch.no_grad():
        trainer.model.heads.lm.bias[trainer.data.vocab.sep] += 1.0
    return trainer.model.eval(), trainer.criterion, drawn, trainer.data.vocab


def greedy(model, vocab, text, own, other):
    """The translation of ids by `unitk generate` from one language into the other."""
    task = Translation(Translation.Config(languages=(own, other)), vocab)
    config = GenerateConfig(beam=1, max_len=13 * len(text) // 10 + 5)
    [[best]] = Generator(model, task).outputs(Sources([[text]]), config)
    ids = best.hypothesis.ids
    return ids[ids != vocab.sep]


def test_the_encoder_reads_what_generate_writes(run):
    model, criterion, drawn, vocab = run
    batch = make_batch(drawn).to("cpu")
    assert len(batch.docs) < len(drawn), "texts are packed"
    # rows hold examples in an order of their own
    order = [int(one) for one in batch.owner]
    assert sorted(order) == list(range(len(drawn)))
    old, new = unpack(batch), unpack(criterion.translate(model, batch))
    texts = [one.towers["enc"].token[1:-1].tolist() for one in old]
    found = {tuple(one.asks[0].label.tolist()): one for one in new}
    lengths = set()
    for text in texts:
        example = found[(*text, vocab.sep)]
        before = next(one for one in old if one.towers["enc"].token[1:-1].tolist() == text)
        own = int(before.towers["dec"].seg[0])
        expected = greedy(model, vocab, np.array(text), own, 1 - own)
        source = example.towers["enc"]
        assert source.token.tolist() == [vocab.sep, *expected, vocab.sep]
        assert (source.seg == 1 - own).all() and (source.cross == 1).all()
        assert source.pos.tolist() == list(range(len(source)))
        assert (example.towers["dec"].table == before.towers["dec"].table).all()
        assert (example.asks[0].rows == before.asks[0].rows).all()
        lengths.add(len(expected))
    assert len(lengths) > 2


def test_nothing_flows_through_a_translation(run):
    """Its gradients are those of pairs with the translations as sources."""
    model, criterion, drawn, vocab = run
    batch = make_batch(drawn).to("cpu")
    examples = []
    for one in drawn:
        text, own = one.towers["enc"].token[1:-1], int(one.towers["dec"].seg[0])
        translation = greedy(model, vocab, text, own, 1 - own)
        task = Translation(Translation.Config(languages=(1 - own, own)), vocab)
        examples.append(task.finetune([translation], text, np.random.default_rng()))
    pairs = make_batch(examples).to("cpu")
    gradients = []
    for one, loss_of in ((pairs, CrossEntropy()), (batch, criterion)):
        model.zero_grad()
        assert loss_of.counts(one) == loss_of.counts(pairs)
        loss_of(model, one, 0, 1).sums["lm"].backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        scale = gradient.abs().max() + 1e-6
        assert torch.allclose(gradient / scale, gradients[1][name] / scale, atol=1e-5), name


def test_pairs_are_compared_as_they_are(start):
    trainer = Trainer(start(f"{BACK} --device cpu", "pairs0"))
    examples = trainer.data.train
    batch = make_batch([draw(examples, 1, 0, i) for i in range(4)]).to("cpu")
    model = trainer.model.eval()
    ours, plain = (
        one(model, batch, 0, 1).sums["lm"] for one in (trainer.criterion, CrossEntropy())
    )
    assert ours == plain


def test_a_language_that_the_model_has_not_is_refused(start):
    trainer = Trainer(start(f"{BACK} --task.languages 0,5 --device cpu", "text0"))
    batch = make_batch([draw(trainer.data.train, 1, 0, 0)]).to("cpu")
    with pytest.raises(UsageError, match="--task.languages: 5 is beyond --arch.num-segments 2"):
        trainer.criterion(trainer.model, batch, 0, 1)


def test_unpacked_examples_make_the_batch(run):
    batch = make_batch(run[2])
    again = make_batch(unpack(batch.to("cpu")))
    for name, table in batch.towers.items():
        assert (
            table[:, table[BORN] < NEVER].sum(1)
            == again.towers[name][:, again.towers[name][BORN] < NEVER].sum(1)
        ).all()
    assert again.count == batch.count
    assert (unpack(zero_weights(batch).to("cpu"))[0].asks[0].weight == 0).all()


def test_draws_depend_on_the_seed_and_cool_down_to_greedy_search(run):
    model, criterion, drawn, vocab = run
    batch = make_batch(drawn).to("cpu")

    def read(temperature, seed):
        torch.manual_seed(seed)
        made = BackTranslationConfig(temperature=temperature).build(vocab).translate(model, batch)
        return [one.towers["enc"].token.tolist() for one in unpack(made)]

    assert read(1.0, 3) == read(1.0, 3) != read(1.0, 4)
    assert sorted(read(1e-4, 3)) == sorted(read(0, 4)) != sorted(read(1.0, 3))


def test_in_16_bits_all_weights_have_gradients(run):
    """The search leaves no weight behind that autocast has converted without gradients."""
    model, criterion, drawn, _ = run
    batch = make_batch(drawn).to("cpu")
    with torch.autocast("cpu", torch.bfloat16):
        loss = criterion(model.train(), batch, 0, 1).sums["lm"]
    loss.backward()
    assert model.training
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.every(2)
@pytest.mark.parametrize("more", ["", "--criterion.temperature 1", "--task mass_translation=0.5"])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(start, tmp_path, more):
    words = (
        f"{BACK}=0.5 {more} --criterion back_translation" if "=0.5" in more else f"{BACK} {more}"
    )
    words += f" {DETERMINISTIC}"
    data = "text0", "text1"
    train(start(f"{words} --max-steps 4", *data, run="whole"))
    train(start(f"{words} --max-steps 2", *data, run="parts"))
    torch.rand(3)
    train(start(f"{words} --max-steps 4 --resume", *data, run="parts"))
    whole, parts = (
        load_file(tmp_path / name / "checkpoints/step-4/model.safetensors")
        for name in ("whole", "parts")
    )
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())


def test_positions_limit_a_translation(run):
    model, criterion, drawn, vocab = run
    with torch.no_grad():
        model.heads.lm.bias[vocab.sep] -= 100  # it never ends
    made = criterion.translate(model, make_batch(drawn).to("cpu"))
    for one in unpack(made):
        words = len(one.asks[0].label) - 1
        assert len(one.towers["enc"]) == 2 + min(13 * words // 10 + 5, 78)
