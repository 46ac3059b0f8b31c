"""starlane.data: what is handed out is what was published, in an order that every host agrees on, and goes on after a stop."""

import hashlib
import io
import pathlib
import random
import tarfile
from collections import Counter

import pytest
from conftest import system, wait_until

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from starlane.data import Order, Samples, Tree  # noqa: E402


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> pathlib.Path:
    """Text files in folders, tar shards and parquet files."""
    root = tmp_path_factory.mktemp("source")
    dice = random.Random(5)
    for number in range(90):
        path = root / f"text/{number % 7}/{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(dice.randrange(0, 40_000)))
    (root / "shards").mkdir()
    for shard in range(3):
        with tarfile.open(root / f"shards/{shard}.tar", "w") as tar:
            for sample in range(20):
                for extension in ("jpg", "cls"):
                    data = dice.randbytes(dice.randrange(1, 9000))
                    member = tarfile.TarInfo(f"{shard}/{sample:03}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return root


@pytest.fixture(scope="module")
def published(site, source) -> pathlib.Path:
    site.run("dataset", "publish", str(source), "training", "v1")
    path = site.mount / "public/training/v1"
    wait_until(path.is_dir)
    return path


@pytest.fixture
def tree(published, tmp_path) -> Tree:
    return Tree(published, cache=tmp_path)


def contents(root: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("length", [0, 1, 2, 3, 17, 1000, 4097])
def test_an_order_is_a_permutation_cut_among_shards(length):
    for shards in (1, 3, 8):
        seen = [index for shard in range(shards) for index in Order(length, 3, 1, shard=shard, shards=shards)]
        assert sorted(seen) == list(range(length))


def test_orders_differ_by_seed_and_epoch_and_never_by_release():
    orders = {tuple(Order(500, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    digest = hashlib.sha256(repr(list(Order(1000, 7, 2))).encode()).hexdigest()
    assert digest == "747b8410ab077133a06acc47591b7817fcf06ba81d96f84f431e826968a20681"


def test_an_order_is_shuffled_well():
    """Neighbours of the order are no neighbours in the list: an eighth of all steps would be, of 8 apart, for a poor mix."""
    order = list(Order(10_000, 1))
    assert sum(abs(a - b) < 10 for a, b in zip(order, order[1:], strict=False)) < 60  # 20 are expected
    fixed = sum(index == at for at, index in enumerate(order))
    assert fixed < 10


def test_the_site_the_walk_and_the_cache_agree(site, published, source, tmp_path, monkeypatch):
    monkeypatch.setenv("STARLANE_BINARY", str(system.BINARY))
    expected = sorted((path, len(data)) for path, data in contents(source).items())
    walked = Tree(published, cache=tmp_path / "a")
    asked = Tree(published, site=site.dir, cache=tmp_path / "b")
    monkeypatch.setattr(Tree, "_walk", lambda self: pytest.fail("walked"))
    assert [(file.path, file.bytes) for file in asked.entries()] == expected
    monkeypatch.undo()
    assert [(file.path, file.bytes) for file in walked.entries()] == expected
    again = Tree(published, cache=tmp_path / "a")
    monkeypatch.setattr(Tree, "_walk", lambda self: pytest.fail("walked, though the list was kept"))
    assert again.entries() == walked.entries()


def test_a_link_is_followed_and_a_volume_refused(site, published, work, tmp_path):
    link = tmp_path / "data"
    link.symlink_to(published)
    assert Tree(link, cache=tmp_path).version == Tree(published, cache=tmp_path).version
    with pytest.raises(ValueError, match="not a published version"):
        Tree(work)
    with pytest.raises(NotADirectoryError, match="no directory"):
        Tree(tmp_path / "nothing")


def test_every_file_once_with_its_bytes(tree, source):
    expected = {path: data for path, data in contents(source).items() if path.endswith(".txt")}
    got = list(Samples(tree.files("*.txt"), seed=1))
    assert dict(got) == expected
    assert len(got) == len(expected)
    assert [path for path, _ in got] != sorted(expected)
    assert [path for path, _ in Samples(tree.files("*.txt"), shuffle=False)] == sorted(expected)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_an_epoch(tree, source, method):
    samples = Samples(tree.files("*.txt"), seed=2, ahead=5)
    loader = DataLoader(samples, batch_size=None, num_workers=3, multiprocessing_context=method)
    assert dict(list(loader)) == {p: d for p, d in contents(source).items() if p.endswith(".txt")}
    assert len(loader) == len(samples) == 90


def test_ranks_share_an_epoch(tree):
    seen = Counter(path for rank in range(4) for path, _ in Samples(tree.files("*.txt"), rank=rank, ranks=4))
    assert len(seen) == 90
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_goes_on_where_it_stopped(tree, workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        samples = Samples(tree.files("*.txt"), seed=4, epoch=3)
        return stateful.StatefulDataLoader(samples, batch_size=None, num_workers=workers)

    whole = [path for path, _ in loader()]
    first = loader()
    steps = iter(first)
    begun = [next(steps)[0] for _ in range(31)]
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    assert begun + [path for path, _ in second] == whole


def test_a_state_of_another_version_is_refused(site, source, tree):
    samples = Samples(tree.files("*.txt"), seed=4)
    steps = iter(samples)
    next(steps)
    state = samples.state_dict()
    site.run("dataset", "publish", str(source), "training", "v2")
    other = site.mount / "public/training/v2"
    wait_until(other.is_dir)
    with pytest.raises(ValueError, match="training/v1@.* the data are training/v2@"):
        Samples(Tree(other).files("*.txt")).load_state_dict(state)
    with pytest.raises(ValueError, match="units"):
        Samples(tree.files("*1.txt")).load_state_dict(state)
    with pytest.raises(ValueError, match="format"):
        samples.load_state_dict({**state, "format": 9})
    resumed = Samples(tree.files("*.txt"), rank=1, ranks=2)
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match="as many ranks"):
        next(iter(resumed))


def test_tar_samples_are_what_webdataset_reads(tree, published):
    webdataset = pytest.importorskip("webdataset")
    shards = sorted(str(path) for path in (published / "shards").iterdir())
    theirs = {s["__key__"]: (s["jpg"], s["cls"]) for s in webdataset.WebDataset(shards, shardshuffle=False)}
    ours = list(Samples(tree.tar_samples(), seed=1))
    assert {s["__key__"]: (s["jpg"], s["cls"]) for s in ours} == theirs
    assert len(ours) == len(theirs) == 60
    again = Samples(tree.tar_samples(), seed=1)  # from the kept index
    assert [s["__key__"] for s in again] == [s["__key__"] for s in ours]


def test_row_groups_of_parquet_files(site, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    for number in range(3):
        table = pyarrow.table({"row": list(range(number * 1000, number * 1000 + 1000))})
        (tmp_path / "rows").mkdir(exist_ok=True)
        parquet.write_table(table, tmp_path / f"rows/{number}.parquet", row_group_size=100)
    site.run("dataset", "publish", str(tmp_path / "rows"), "rows", "v1")
    path = site.mount / "public/rows/v1"
    wait_until(path.is_dir)
    groups = list(Samples(Tree(path, cache=tmp_path).row_groups(), seed=1))
    assert len(groups) == 30
    assert sorted(row for table in groups for row in table["row"].to_pylist()) == list(range(3000))
    assert [table["row"][0].as_py() for table in groups] != list(range(0, 3000, 100))


def test_what_cannot_be_read_says_so(tree, tmp_path):
    with pytest.raises(FileNotFoundError, match="matches"):
        tree.files("*.nothing")
    with pytest.raises(ValueError, match="not an uncompressed tar file"):
        tree.tar_samples("text/0/007.txt")
    with pytest.raises(ValueError, match="no parquet file"):
        tree.row_groups("text/0/007.txt")
    with pytest.raises(ValueError, match="1 or more"):
        Samples(tree.files(), ahead=0)
