import copy

import pytest
import torch

from datasieve.errors import ConfigError, ModelError, OutputError
from datasieve.training.textual_inversion import TextualInversion, Token


@pytest.fixture
def attached(base):
    made = []

    def attach(*tokens, **options):
        adapter = TextualInversion(tokens, **options)
        adapter.attach(base)
        made.append(adapter)
        return adapter

    yield attach
    for adapter in made:
        adapter.detach()


def encode(base, ids):
    return base.text_encoder(ids)[0]


def test_vectors_act_as_rows_added_to_the_table_would(base, attached):
    adapter = attached(Token("<toy>", 2, "toy"))
    ids = adapter.tokens(["a photo of <toy> on grass"])
    with torch.no_grad():
        ours = encode(base, ids)
    # The independent way: a copy of the encoder with a longer table, the new rows written into it.
    grown = copy.deepcopy(base.text_encoder)
    for hooks in (grown.get_input_embeddings()._forward_hooks, grown.get_input_embeddings()._forward_pre_hooks):
        hooks.clear()
    rows = base.token_table.weight.shape[0]
    grown.resize_token_embeddings(rows + 2, mean_resizing=False)
    with torch.no_grad():
        grown.get_input_embeddings().weight[rows:] = adapter.vectors
        assert torch.allclose(grown(ids)[0], ours, atol=1e-6)


def test_a_prompt_holds_all_vectors_in_order_and_the_words_around_them(base, attached):
    adapter = attached(Token("<toy>", 4, "toy"))
    ids = adapter.tokens(["a photo of <toy>, red"])[0].tolist()
    rows = base.token_table.weight.shape[0]
    around = base.tokenizer("a photo of", add_special_tokens=False).input_ids
    after = base.tokenizer(", red", add_special_tokens=False).input_ids
    want = [49406, *around, rows, rows + 1, rows + 2, rows + 3, *after, 49407]
    assert ids[: len(want)] == want
    assert set(ids[len(want) :]) == {49407}


def test_the_longer_of_two_placeholders_wins(attached):
    adapter = attached(Token("<a>", 1, "toy"), Token("<a>s", 1, "toys"))
    ids = adapter.tokens(["<a>s and <a>"])[0].tolist()
    assert [i - 49408 for i in ids if i >= 49408] == [1, 0]


def test_every_vector_learns_and_no_word_of_the_vocabulary_moves(base, attached):
    adapter = attached(Token("<thing>", 4, "thing"))
    before, start = base.token_table.weight.clone(), adapter.vectors.detach().clone()
    optimizer = torch.optim.AdamW([adapter.vectors], lr=1e-2, weight_decay=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        (encode(base, adapter.tokens(["a photo of <thing>"])) ** 2).mean().backward()
        optimizer.step()
    assert torch.equal(base.token_table.weight, before)
    assert ((adapter.vectors - start).abs().amax(dim=1) > 1e-3).all()


def test_detaching_leaves_no_trace(base, attached):
    ids = base.tokenizer(["a photo of a toy"], padding="max_length", return_tensors="pt").input_ids
    with torch.no_grad():
        before = encode(base, ids)
        adapter = attached(Token("<toy>", 1, "toy"))
        adapter.detach()
        assert torch.equal(encode(base, ids), before)
    assert not base.token_table._forward_hooks
    assert not base.token_table._forward_pre_hooks


def test_a_start_from_a_word_has_its_direction_and_the_vocabularys_median_norm(base, attached):
    adapter = attached(Token("<toy>", 1, "toy"))
    table = base.token_table.weight
    row = table[base.tokenizer("toy", add_special_tokens=False).input_ids[0]]
    vector = adapter.vectors[0].detach()
    assert torch.cosine_similarity(vector, row, dim=0) > 0.9999
    assert vector.norm() == pytest.approx(float(table.norm(dim=1).median()), rel=1e-4)


def test_norm_priors_move_norms_and_keep_directions(base, attached):
    median = float(base.token_table.weight.norm(dim=1).median())
    for prior, share in (("rescale", 1.0), ("pull", 0.3), ("none", 0.0)):
        adapter = attached(Token("<toy>", 1, "toy"), norm_prior=prior)
        with torch.no_grad():
            adapter.vectors.mul_(3.0)
        direction = adapter.vectors.detach() / adapter.vectors.detach().norm()
        adapter.rate = 3e-3  # times 100 is the share of the way that "pull" goes
        adapter.after_step()
        want = 3 * median + share * (median - 3 * median)
        assert float(adapter.vectors.detach().norm()) == pytest.approx(want, rel=1e-4)
        assert torch.allclose(adapter.vectors.detach() / adapter.vectors.detach().norm(), direction, atol=1e-6)
        adapter.detach()


def test_an_ordinary_word_is_refused_as_a_token(base):
    with pytest.raises(ConfigError, match="already is a word"):
        TextualInversion([Token("cat")]).attach(base)
    assert not base.token_table._forward_hooks


def test_two_concepts_cannot_share_a_token():
    with pytest.raises(ConfigError, match="token of its own"):
        TextualInversion([Token("<a>"), Token("<a>")])


def test_an_embedding_of_another_family_is_refused_naming_both_widths(base):
    with pytest.raises(ModelError, match=r"768 wide.* 112"):
        TextualInversion.of_vectors({"<toy>": torch.zeros(1, 768)}).attach(base)


def test_an_untouched_vector_is_not_saved(base, attached, tmp_path):
    adapter = attached(Token("<toy>", 1, "toy"))
    with pytest.raises(OutputError, match="never changed"):
        adapter.export(tmp_path / "toy.safetensors", step=10)
    assert list(tmp_path.iterdir()) == []
