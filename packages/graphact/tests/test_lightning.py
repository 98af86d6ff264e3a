"""In Lightning a network trains as it does in a plain loop, on every kind of batch."""

import pytest
import torch

import graphact

lightning = pytest.importorskip("lightning", reason="GraphLearner needs lightning (extra lightning)")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import DataLoader  # noqa: E402
from torch_geometric.nn import GCN, global_mean_pool  # noqa: E402

from graphact.lightning import GraphLearner  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # advice that a small test need not take
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval"),
    pytest.mark.filterwarnings("ignore:.*but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),  # Lightning's own use of torch
]


def trainer(tmp_path, epochs):
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )


def case():
    generator = torch.Generator().manual_seed(0)
    graph = graphact.Graph.stochastic_block_model([10, 10], p=0.8, q=0.1, generator=generator).normalize("symmetric")
    x = torch.randn(12, 20, 1, generator=generator)
    torch.manual_seed(0)
    return graph, x, graphact.nn.GCNN([1, 4], order=1, activation="max-ga", bias=True)


def test_training_is_that_of_a_plain_loop(tmp_path):
    graph, x, model = case()
    learner = GraphLearner(model, loss="mse", learning_rate=0.02)
    batches = [(x[:8], x[:8].relu(), graph), (x[8:], x[8:].relu(), graph)]
    trainer(tmp_path, 3).fit(learner, torch.utils.data.DataLoader(batches, batch_size=None))

    _, _, expected = case()
    optimizer = torch.optim.AdamW(expected.parameters(), lr=0.02, weight_decay=0.0)
    for _ in range(3):
        for x, y, graph in batches:
            optimizer.zero_grad()
            (expected(x, graph) - y).square().mean().backward()
            optimizer.step()
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(dict(model.named_parameters())[name], parameter)


def test_masks_of_pyg(tmp_path):
    graph, x, _ = case()
    y = torch.arange(2).repeat_interleave(10)
    train = torch.arange(20) % 2 == 0
    sample = Data(x=x[0] + y[:, None], y=y, edge_index=graph.to_edge_index()[0], train_mask=train, val_mask=~train)
    learner = GraphLearner(graphact.nn.GCNN([1, 4], order=1, activation="max-ga", out_features=2, bias=True))
    loader = torch.utils.data.DataLoader([sample], batch_size=None)
    run = trainer(tmp_path, 1)
    run.fit(learner, loader, loader)
    scores = learner(sample).detach()
    logged = run.callback_metrics
    right = (scores[~train].argmax(1) == y[~train]).float().mean()
    torch.testing.assert_close(logged["val_accuracy"], 100 * right)
    torch.testing.assert_close(logged["val_loss"], torch.nn.functional.cross_entropy(scores[~train], y[~train]))
    other = sample.clone()
    other.y = torch.where(train, y, 1 - y)
    learner = GraphLearner(learner.model)  # of no trainer
    assert learner.training_step(other, 0) == learner.training_step(sample, 0)
    assert learner.validation_step(other, 0) != learner.validation_step(sample, 0)


def test_graphs_of_a_loader(tmp_path):
    graph, x, _ = case()
    attach = graphact.pyg.AttachGraph(normalize="symmetric")
    samples = [
        attach(Data(x=x[i] + i % 2, y=torch.tensor([i % 2]), edge_index=graph.to_edge_index()[0])) for i in range(12)
    ]
    model = graphact.nn.GCNN([1, 4], order=1, activation="max-ga", out_features=2, bias=True)
    learner = GraphLearner(model, pool=global_mean_pool, learning_rate=0.05)
    run = trainer(tmp_path, 30)
    run.fit(learner, DataLoader(samples, batch_size=5), DataLoader(samples, batch_size=5))
    assert run.callback_metrics["val_accuracy"] > 90  # of batches of 5, 5 and 2: an exact share of twelve
    assert run.callback_metrics["val_accuracy"].item() * 12 / 100 == pytest.approx(
        sum((learner(b).argmax(1) == b.y).sum().item() for b in DataLoader(samples, batch_size=12)), abs=1e-3
    )


@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("activation", ["grelu", "digraf"])
def test_an_answer_does_not_depend_on_the_other_graphs_of_a_batch(activation, attached):
    graph, x, _ = case()
    attach = graphact.pyg.AttachGraph() if attached else lambda sample: sample
    samples = [attach(Data(x=(1 + i) * x[i], edge_index=graph.to_edge_index()[0])) for i in range(4)]
    act = graphact.nn.make_activation(activation, features=4)
    models = [graphact.nn.GCNN([1, 4], activation=activation), graphact.nn.Sequential(torch.nn.Linear(1, 4), act)]
    models += [] if attached else [graphact.pyg.PassGraph(GCN(1, 4, 2, 2, act=act))]
    models += [torch.compile(models[0], backend="eager")]
    for model in models:
        learner = GraphLearner(model, pool=global_mean_pool)
        together = learner(next(iter(DataLoader(samples, batch_size=4))))
        alone = torch.cat([learner(batch) for batch in DataLoader(samples, batch_size=1)])
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_answers_on_a_union_are_pooled():
    graph, x, model = case()
    learner = GraphLearner(model, loss="mse", pool=global_mean_pool)
    union, signal = graphact.Graph.union([graph, graph]), torch.cat([x[0], x[1]])
    expected = torch.stack([model(x[0], graph).mean(0), model(x[1], graph).mean(0)])
    torch.testing.assert_close(learner((signal, None, union)), expected)
    torch.testing.assert_close(learner.training_step((signal, expected + 2, union), 0).item(), 4.0)
    torch.testing.assert_close(learner((x[0], None, graph)), expected[:1])
    with pytest.raises(TypeError, match="graph must be a graphact.Graph for answers to be pooled, got Tensor"):
        learner((x[0], None, graph.to_edge_index()[0]))


def test_checkpoints_hold_the_settings(tmp_path):
    graph, x, model = case()
    union, signal = graphact.Graph.union([graph, graph]), torch.cat([x[0], x[1]])
    for pool, targets in ((None, signal), (global_mean_pool, torch.ones(2, 1))):
        run = trainer(tmp_path, 1)
        learner = GraphLearner(model, loss="mse", learning_rate=0.05, weight_decay=0.1, pool=pool)
        assert dict(learner.hparams) == {"loss": "mse", "learning_rate": 0.05, "weight_decay": 0.1}
        run.fit(learner, torch.utils.data.DataLoader([(signal, targets, union)], batch_size=None))
        run.save_checkpoint(tmp_path / "learner.ckpt")
        options = {} if pool is None else {"pool": pool}
        found = GraphLearner.load_from_checkpoint(tmp_path / "learner.ckpt", model=case()[2], **options)
        assert (found.loss, found.learning_rate, found.weight_decay) == ("mse", 0.05, 0.1)
        for name, parameter in model.named_parameters():
            assert torch.equal(dict(found.model.named_parameters())[name], parameter)


def test_what_is_refused():
    _, x, model = case()
    with pytest.raises(ValueError, match="loss must be one of"):
        GraphLearner(model, loss="hinge")
    with pytest.raises(TypeError, match=r"batch must be PyG's Data or a tuple \(x, y, graph\), got Tensor"):
        GraphLearner(model)(x)
