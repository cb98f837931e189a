"""Pickles with other objects beside the weights: none of their code runs."""

import collections
import datetime
import enum
import json
import pathlib
import sys
import types

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from unitk.errors import CheckpointError
from unitk.formats.archive import read_pickle, read_tensors, unwrap, without_prefix
from unitk.formats.hf.families import families
from unitk.formats.hf.folder import KIN, family_of, rename_tensors
from unitk.formats.pickles import StandIn, is_harmless

ROOT = pathlib.Path("model.pt")


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Saves what a function makes of a module `trainer.parts`, which is gone again afterwards."""

    def saved(make, name="model.pt", zipped=False):
        with monkeypatch.context() as patch:
            for module in ("trainer", "trainer.parts"):
                patch.setitem(sys.modules, module, types.ModuleType(module))
            there = sys.modules["trainer.parts"]

            def own(name, *bases, **members):
                kind = type(name, bases, {"__module__": "trainer.parts", **members})
                setattr(there, name, kind)
                return kind

            path = tmp_path / name
            torch.save(make(own), path, _use_new_zipfile_serialization=zipped)
        return path

    return saved


def meters(own):
    meter = own("AverageMeter", __init__=lambda self, n=0: setattr(self, "n", n))
    slots = own("Slotted", __slots__=("a",))
    slotted = slots()
    slotted.a = 1
    named, attributes = own("Meters", collections.OrderedDict), own("Attributes", dict)
    own_list = own("Names", list)
    kept = attributes(lr=0.1)
    kept.frozen = True
    return {
        "model": {"a": torch.arange(3.0)},
        "meters": named(loss=meter(3), wps=meter()),
        "kept": kept,
        "slotted": slotted,
        "names": own_list(["x", "y"]),
        "type": meter,
    }


@pytest.mark.parametrize("zipped", [True, False])
def test_objects_of_other_packages_keep_their_state_and_run_nothing(save, zipped):
    found = read_pickle(save(meters, zipped=zipped))
    assert "trainer" not in sys.modules
    assert found["model"]["a"].tolist() == [0, 1, 2]
    assert list(found["meters"]) == ["loss", "wps"]
    assert found["meters"]["loss"].n == 3
    assert found["meters"]["loss"].of == "trainer.parts.AverageMeter"
    assert dict(found["kept"]) == {"lr": 0.1}
    assert found["names"] == ["x", "y"]


def test_a_class_in_reach_is_not_called_either(save, monkeypatch):
    ran = []
    path = save(meters)
    fake = types.ModuleType("trainer.parts")
    fake.AverageMeter = lambda *given: ran.append(given)
    monkeypatch.setitem(sys.modules, "trainer", types.ModuleType("trainer"))
    monkeypatch.setitem(sys.modules, "trainer.parts", fake)
    read_pickle(path)
    assert not ran


class Colour(enum.Enum):
    RED = "red"


def test_paths_that_python_3_13_wrote_are_read(tmp_path, monkeypatch):
    """It names its classes by the module that they are in, and 3.14 as before."""
    members = {"__module__": "pathlib._local", "__reduce__": lambda self: (type(self), ("a", "b"))}
    kind = type("PosixPath", (), members)
    module = types.SimpleNamespace(PosixPath=kind)
    monkeypatch.setitem(sys.modules, "pathlib._local", module)
    torch.save({"there": 1, "path": kind()}, tmp_path / "model.pt")
    assert b"pathlib._local" in (tmp_path / "model.pt").read_bytes()
    found = read_pickle(tmp_path / "model.pt")
    assert found["there"] == 1 and isinstance(found["path"], StandIn)


def test_plain_values_of_libraries_are_read(tmp_path):
    there = {
        "float": np.float64(1.5),
        "int": np.int64(3),
        "half": np.float32(0.5),
        "flag": np.bool_(True),
        "array": np.arange(4, dtype=np.uint8),
        "dtype": torch.float16,
        "device": torch.device("cuda:1"),
        "size": torch.Size([2, 3]),
        "set": {1, 2},
        "bytes": b"ab",
        "counts": collections.Counter("aab"),
    }
    others = {
        "path": pathlib.PurePosixPath("a/b"),
        "when": datetime.datetime(2020, 1, 1),
        "default": collections.defaultdict(list, a=[1]),
        "empty": collections.defaultdict(int),
        "queue": collections.deque([1, 2], maxlen=3),
        "colour": Colour.RED,
        "space": types.SimpleNamespace(a=1),
    }
    torch.save({**there, **others}, tmp_path / "model.pt")
    found = read_pickle(tmp_path / "model.pt")
    array, other = found.pop("array"), there.pop("array")
    assert (array == other).all() and array.dtype == other.dtype
    assert {name: found[name] for name in there} == there
    assert dict(found["default"]) == {"a": [1]} and dict(found["empty"]) == {}


@pytest.mark.parametrize(
    "name",
    ["subprocess.Popen", "os.PathLike", "builtins.eval", "shutil.rmtree", "numpy.load"]
    + ["torch.hub.load", "pip.main", "trainer.parts.build", "operator.attrgetter", "pty.spawn"],
)
def test_functions_and_the_standard_library_are_not_harmless(name):
    assert not is_harmless(name)


def test_a_whole_model_is_named(save):
    path = save(lambda own: own("Net", __init__=lambda self: None)())
    with pytest.raises(CheckpointError, match=r"trainer\.parts\.Net, not tensors: .*state_dict"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (lambda model, file: torch.save(model, file, _use_new_zipfile_serialization=False), "mod"),
        (lambda model, file: torch.jit.save(torch.jit.script(model), file), "module.*state_dict"),
        (lambda model, file: torch.save(model.to("meta").state_dict(), file), "weight .*meta"),
        (
            lambda model, file: torch.save({"a": model.weight.detach().to_sparse()}, file),
            "'a' is sparse",
        ),
    ],
    ids=range(4),
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_tensor_with_values_is_told(save, message, tmp_path):
    """A module in torch's old format, a program, and tensors without or of few values."""
    file = tmp_path / "x.bin"
    save(torch.nn.Linear(2, 3), str(file))
    with pytest.raises(CheckpointError, match=f"x.bin.*{message}"):
        read_tensors(file)


def test_settings_of_omegaconf_are_plain(tmp_path):
    omegaconf = pytest.importorskip("omegaconf")
    there = {"model": {"_name": "bart", "layers": 2, "sizes": [1, 2], "none": None}}
    torch.save({"cfg": omegaconf.OmegaConf.create(there)}, tmp_path / "model.pt")
    assert read_pickle(tmp_path / "model.pt") == {"cfg": there}


def nodes(own):
    """What omegaconf's pickles have in them."""
    node, mapping = own("AnyNode"), own("DictConfig")

    def filled(kind, **state):
        made = kind()
        vars(made).update(state)
        return made

    inner = filled(mapping, _content={"layers": filled(node, _val=2)}, _metadata=None)
    return {"cfg": filled(mapping, _content={"model": inner}, _parent=inner)}


def test_settings_of_a_fairseq_of_2021_are_plain_without_omegaconf(save):
    path = save(nodes)
    path.write_bytes(path.read_bytes().replace(b"ctrainer.parts\n", b"comegaconf.x\n"))
    assert read_pickle(path) == {"cfg": {"model": {"layers": 2}}}


@pytest.mark.parametrize("key", ["model", "state_dict", "module", "model_state_dict"])
def test_tensors_are_found_where_trainers_put_them(tmp_path, key):
    torch.save({key: {"a": torch.ones(2)}, "step": 3}, tmp_path / "pytorch_model.bin")
    assert read_tensors(tmp_path / "pytorch_model.bin")["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "wrapped",
    [
        "module.{}",
        "_orig_mod.{}",
        "module._orig_mod.{}",
        "_orig_mod.module.{}",
        "module.module.{}",
        "_fsdp_wrapped_module._checkpoint_wrapped_module.{}",
    ],
)
def test_prefixes_of_wrappers_are_taken_off(wrapped):
    names = ["h.0.weight", "h.1.weight", "module_list.bias"]
    tensors = {wrapped.format(name): torch.ones(1) for name in names}
    assert list(unwrap(tensors, ROOT)) == names


def test_wrapped_parts_of_a_model_lose_their_wrappers_too():
    given = ["embed.weight", "h._orig_mod.0.weight", "h.1._checkpoint_wrapped_module.weight"]
    found = unwrap(dict.fromkeys(given, torch.ones(1)), ROOT)
    assert list(found) == ["embed.weight", "h.0.weight", "h.1.weight"]
    with pytest.raises(CheckpointError, match="two tensors"):
        unwrap(dict.fromkeys(["a", "_orig_mod.a"], torch.ones(1)), ROOT)


def test_a_word_that_some_names_lack_is_no_prefix():
    tensors = dict.fromkeys(["model.a.weight", "model.b.weight"], torch.ones(1))
    assert list(without_prefix(tensors, ["a", "b"], ROOT)) == ["a.weight", "b.weight"]
    assert list(without_prefix(tensors, ["model"], ROOT)) == list(tensors)
    more = tensors | {"c": torch.ones(1)}
    assert list(without_prefix(more, ["a", "b"], ROOT)) == list(more)


ALIKE = {*"ernie4_5 eurobert gemma3_text glm glm4 llama mistral olmo2 qwen2 qwen3 smollm3".split()}
ALIKE |= {"stablelm", "starcoder2"}
"""Model types whose tensors have the same names, or some of them."""
PREFIXES = ["module.", "_orig_mod.", "model.", "model.model.", "net.model."]


# mt5 has the names of t5; three have no model of their own in transformers, and tests elsewhere
@pytest.mark.parametrize(
    "kind", sorted({*families()} - {"mt5", "ltgbert", "gpt_bert", "encoder-decoder"})
)
def test_every_family_is_read_whatever_wrapped_it(hf, kind):
    """The same names as without a prefix, of whole and of bare models."""
    model = tiny(hf, kind)
    for stored in (model.state_dict(), model.base_model.state_dict()):
        wanted = rename_tensors(stored, families()[kind], ROOT)
        for prefix in PREFIXES:
            wrapped = unwrap({prefix + name: stored[name] for name in stored}, ROOT)
            assert rename_tensors(wrapped, families()[kind], ROOT).keys() == wanted.keys(), prefix


@pytest.mark.parametrize("kind", [one for one in families() if one not in KIN])
def test_a_family_is_known_by_its_class_or_its_tensors(hf, kind):
    """As in folders of 2019, whose config.json has no model_type."""
    model = tiny(hf, kind)
    given = {"architectures": [type(model).__name__]}
    assert family_of(given, {}, ROOT) == family_of(given | {"model_type": ""}, {}, ROOT) == kind
    if kind in ALIKE:
        with pytest.raises(CheckpointError, match=f"no model_type.*{kind}"):
            family_of({}, model.state_dict(), ROOT)
        return
    for prefix in ("", "model."):
        stored = {prefix + name: tensor for name, tensor in model.state_dict().items()}
        assert family_of({}, stored, ROOT) == kind
    if kind not in ("ernie", "electra"):  # which, bare, are BERTs
        stored = model.base_model.state_dict()
        assert family_of({"type_vocab_size": model_segments(model)}, stored, ROOT) == kind


@pytest.mark.parametrize("named", ["bert_config.json", "config.json"])
def test_a_folder_of_2019_is_read(tmp_path, hf, kit, vocab_txt, named):
    """As those of SpanBERT, SciBERT and BioBERT: the same weights as with a model_type."""
    model = tiny(hf, "bert")
    model.save_pretrained(tmp_path / "new")
    old = tmp_path / "old"
    old.mkdir()
    for folder in (old, tmp_path / "new"):
        (folder / "vocab.txt").write_bytes(vocab_txt.read_bytes())
    given = json.loads((tmp_path / "new" / "config.json").read_text())
    del given["model_type"], given["architectures"]
    (old / named).write_text(json.dumps(given))
    names = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
    stored = {}
    for name, tensor in model.state_dict().items():
        end = next((end for end in names if name.endswith(end)), "")
        stored[name.removesuffix(end) + names.get(end, "")] = tensor
    torch.save(stored, old / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    both = [kit.to_unitk("hf", tmp_path / one, tmp_path / f"u-{one}") for one in ("old", "new")]
    found, wanted = (load_file(path / "model.safetensors") for path in both)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_family_that_nothing_tells_is_asked_for(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json has no model_type.*bert.*ernie"):
        family_of({}, {"a.weight": torch.ones(1)}, tmp_path / "config.json")


def model_segments(model):
    """The number of segments of a model, as config.json gives it."""
    return 1 if model.config.model_type == "roberta" else 2


def tiny(hf, kind):
    """A small model of transformers of this `model_type`, with an output layer over words."""
    sizes = {"vocab_size": 60, "num_layers": 1, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"hidden_size": 16, "embedding_size": 16, "intermediate_size": 32, "n_layer": 1}
    sizes |= {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2, "n_head": 2, "n_embd": 16}
    sizes |= {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "d_inner": 32}
    sizes |= {"decoder_ffn_dim": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    sizes |= {"max_position_embeddings": 40, "n_positions": 40, "pad_token_id": 0}
    sizes |= {"bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    if kind == "xlnet":
        del sizes["max_position_embeddings"]
        del sizes["hidden_size"], sizes["num_hidden_layers"], sizes["num_attention_heads"]
    if kind in ("t5", "bart"):
        del sizes["num_hidden_layers"], sizes["num_attention_heads"], sizes["hidden_size"]
    if kind in ("gpt2", "openai-gpt"):
        sizes = {key: sizes[key] for key in ("vocab_size", "n_layer", "n_head", "n_embd")}
        sizes["n_positions"] = 40
    if kind == "gpt_neo":
        sizes["attention_types"] = [[["global"], 1]]
    if kind == "t5gemma":
        sizes |= {"head_dim": 8, "num_key_value_heads": 2}
        sizes = {"encoder": sizes, "decoder": sizes, "vocab_size": 60}
    config = hf.AutoConfig.for_model(kind, **sizes)
    masked = type(config) in hf.AutoModelForMaskedLM._model_mapping
    both = kind in ("t5", "bart", "t5gemma")
    made = hf.AutoModelForMaskedLM if masked else hf.AutoModelForCausalLM
    return (hf.AutoModelForSeq2SeqLM if both else made).from_config(config)


class Named:
    """What a pickle has the attribute of a class look up, as Python 3.11.0 stores enumerations."""

    def __reduce__(self):
        return getattr, (pathlib.Path, "home")

    def __call__(self):
        raise NotImplementedError


class Called:
    """The same, and it has it called."""

    def __reduce__(self):
        return Named(), ()


def test_an_attribute_of_a_class_is_a_name_and_is_not_called(tmp_path):
    torch.save({"colour": Named()}, tmp_path / "named.pt")
    found = read_pickle(tmp_path / "named.pt")["colour"]
    assert isinstance(found, StandIn) and not callable(found)
    torch.save({"home": Called()}, tmp_path / "called.pt")
    with pytest.raises(CheckpointError, match="called.pt"):
        read_pickle(tmp_path / "called.pt")
