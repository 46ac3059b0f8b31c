"""Libraries that know nothing of Starlane work on its mount, unchanged and offline: what they leave is what they find."""

import io
import json
import random
import tarfile

import pytest
from conftest import run_python, wait_until

numpy = pytest.importorskip("numpy")


def test_datasets_save_load_and_map_on_a_volume(work, python_env):
    """Arrow files, mapped; the cache of `map` too, found again by a second process."""
    pytest.importorskip("datasets")
    script = """
import sys, datasets
where, first = sys.argv[1], sys.argv[2] == "first"
if first:
    made = datasets.Dataset.from_dict({"x": list(range(20000)), "text": [f"line {n}" * (n % 9) for n in range(20000)]})
    made.save_to_disk(f"{where}/saved", num_shards=3)
found = datasets.load_from_disk(f"{where}/saved")
assert found["x"][12345] == 12345 and len(found) == 20000
calls = []
mapped = found.map(lambda row: {"y": row["x"] * 2}, load_from_cache_file=True, cache_file_name=f"{where}/mapped.arrow")
assert mapped[777]["y"] == 1554
if first:
    mapped.to_parquet(f"{where}/p.parquet")
print("made" if first else len(datasets.load_dataset("parquet", data_files=f"{where}/*.parquet")["train"]))
"""
    env = {**python_env, "HF_HOME": str(work / "home"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    assert run_python(script, env, str(work), "first", timeout=600).endswith("made\n")
    before = (work / "mapped.arrow").stat().st_mtime_ns
    assert run_python(script, env, str(work), "second", timeout=600).endswith("20000\n")
    assert (work / "mapped.arrow").stat().st_mtime_ns == before
    assert any((work / "home").rglob("*.arrow"))


def test_the_hubs_cache_lies_on_a_volume(work, python_env):
    """As the hub lays it out: blobs, and snapshots of symbolic links to them; found offline, and taken by transformers."""
    pytest.importorskip("transformers")
    script = """
import os, pathlib, sys
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download, try_to_load_from_cache
from huggingface_hub.file_download import _create_symlink
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
import torch
cache = pathlib.Path(os.environ["HF_HUB_CACHE"])
if sys.argv[1] == "first":
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                         num_attention_heads=2))
    model.save_pretrained(cache / "draft")
    repo = cache / "models--someone--tiny"
    commit = "0" * 39 + "1"
    for folder in ("blobs", f"snapshots/{commit}", "refs"):
        (repo / folder).mkdir(parents=True)
    (repo / "refs/main").write_text(commit)
    for number, file in enumerate(sorted((cache / "draft").iterdir())):
        blob = repo / "blobs" / f"{number:064x}"
        file.rename(blob)
        _create_symlink(str(blob), str(repo / "snapshots" / commit / file.name), new_blob=True)
    (cache / "draft").rmdir()
path = hf_hub_download("someone/tiny", "config.json")
assert os.path.islink(path) and try_to_load_from_cache("someone/tiny", "config.json") == path
info = scan_cache_dir()
assert [repo.repo_id for repo in info.repos] == ["someone/tiny"] and not info.warnings
assert snapshot_download("someone/tiny") == os.path.dirname(path)
loaded = AutoModelForCausalLM.from_pretrained("someone/tiny")
print(f"{float(sum(p.double().sum() for p in loaded.parameters())):.9f}")
"""
    env = {**python_env, "HF_HOME": str(work / "home"), "HF_HUB_CACHE": str(work / "hub"), "HF_HUB_OFFLINE": "1"}
    (work / "hub").mkdir()
    assert run_python(script, env, "first", timeout=600) == run_python(script, env, "second", timeout=600)


def test_webdataset_writes_and_reads_shards(work):
    webdataset = pytest.importorskip("webdataset")
    dice = random.Random(1)
    samples = {f"{number:04}": dice.randbytes(dice.randrange(1, 5000)) for number in range(120)}
    with webdataset.ShardWriter(str(work / "s-%02d.tar"), maxcount=50, verbose=0) as shards:
        for key, data in samples.items():
            shards.write({"__key__": key, "bin": data, "json": {"length": len(data)}})
    data = webdataset.WebDataset(str(work / "s-{00..02}.tar"), shardshuffle=3, seed=1).shuffle(20).decode()
    found = {sample["__key__"]: (sample["bin"], sample["json"]["length"]) for sample in data}
    assert found == {key: (data, len(data)) for key, data in samples.items()}


def test_mosaic_streaming_reads_a_volume_in_place(work):
    """`local` is the volume itself: no second copy."""
    streaming = pytest.importorskip("streaming")
    with streaming.MDSWriter(out=str(work / "mds"), columns={"n": "int", "data": "bytes"}, size_limit=50_000) as out:
        for number in range(200):
            out.write({"n": number, "data": random.Random(number).randbytes(1000)})
    before = sorted(path.name for path in (work / "mds").iterdir())
    streaming.base.util.clean_stale_shared_memory()
    data = streaming.StreamingDataset(local=str(work / "mds"), shuffle=True, shuffle_seed=3, batch_size=4)
    seen = {sample["n"]: sample["data"] for sample in data}
    assert seen == {number: random.Random(number).randbytes(1000) for number in range(200)}
    assert sorted(path.name for path in (work / "mds").iterdir()) == before


@pytest.mark.parametrize("place", ["volume", "public"])
def test_safetensors_and_transformers_load_as_from_a_local_disk(site, work, tmp_path, place):
    safetensors = pytest.importorskip("safetensors.torch")
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    tensors = {f"t{n}": torch.randn(200 + n, 100).to(torch.bfloat16) for n in range(30)}
    tensors["empty"] = torch.zeros(0, 4)
    where = work / "model.safetensors"
    safetensors.save_file(tensors, where if place == "volume" else tmp_path / "model.safetensors")
    if place == "public":
        site.run("dataset", "publish", str(tmp_path), "weights", "v1")
        where = site.mount / "public/weights/v1/model.safetensors"
        wait_until(where.is_file)
    found = safetensors.load_file(where)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_fastsafetensors_loads_from_the_mount(work):
    fast = pytest.importorskip("fastsafetensors")
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    torch.manual_seed(2)
    tensors = {f"t{n}": torch.randn(300, 70 + n) for n in range(20)}
    safetensors.save_file(tensors, work / "model.safetensors")
    loader = fast.SafeTensorsFileLoader(fast.SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [str(work / "model.safetensors")]})
    buffer = loader.copy_files_to_device()
    try:
        for name, tensor in tensors.items():
            assert torch.equal(buffer.get_tensor(name), tensor)
    finally:
        buffer.close()
        loader.close()


def test_our_copier_in_fastsafetensors(work):
    """Its own loader and tensors, our reads; and the reader alone, to a device that no CPU may touch."""
    fast = pytest.importorskip("fastsafetensors")
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    from starlane import devices
    from starlane.fastsafetensors import Loader, Reader

    torch.manual_seed(2)
    files = {}
    for number in range(2):
        files[work / f"model-{number}.safetensors"] = {f"{number}.t{n}": torch.randn(3000, 70 + n).half() for n in range(20)}
    for path, tensors in files.items():
        safetensors.save_file(tensors, path)
    loader = Loader(fast.SingleGroup(), "cpu")
    loader.add_filenames({0: [str(path) for path in files]})
    buffer = loader.copy_files_to_device()
    try:
        for tensors in files.values():
            for name, tensor in tensors.items():
                assert torch.equal(buffer.get_tensor(name), tensor)
    finally:
        buffer.close()
        loader.close()
    raw = next(iter(files)).read_bytes()
    fake = devices.Fake()
    address = fake.alloc(len(raw) - 1000)
    assert Reader(fake).read_chunked(str(next(iter(files))), address, 1000, len(raw) - 1000) == len(raw) - 1000
    assert fake.read(address, len(raw) - 1000) == raw[1000:]
    with pytest.raises(ValueError, match="truncated"):
        Reader(fake).read_chunked(str(next(iter(files))), address, 1001, len(raw) - 1000)


def test_datapipes_list_open_and_read(site, tmp_path):
    """The article's pipe, over a symbolic link to a published tree."""
    datapipes = pytest.importorskip("torchdata.datapipes")
    expected = set()
    (tmp_path / "text").mkdir()
    for number in range(40):
        lines = [f"{number} {line}" for line in range(number)]
        (tmp_path / f"text/{number}.txt").write_text("".join(line + "\n" for line in lines))
        expected |= set(lines)
    site.run("dataset", "publish", str(tmp_path / "text"), "pipes", "v1")
    wait_until((site.mount / "public/pipes/v1").is_dir)
    (tmp_path / "data").symlink_to(site.mount / "public/pipes/v1")
    pipe = datapipes.iter.FileLister(str(tmp_path / "data"))
    pipe = pipe.open_files(mode="rt").readlines().shuffle().batch(16)
    found = [line for batch in pipe for _, line in batch]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_a_tar_is_seen_growing(work):
    """What WebDataset's and others' writers do: append, flush, and read from another descriptor."""
    with tarfile.open(work / "t.tar", "w") as tar:
        for number in range(3):
            member = tarfile.TarInfo(f"{number}.json")
            data = json.dumps(number).encode()
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
            tar.fileobj.flush()
            with open(work / "t.tar", "rb") as again:
                assert f"{number}.json".encode() in again.read()
