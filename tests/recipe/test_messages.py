"""Every mistake is one sentence that names key, value and remedy."""

from __future__ import annotations

import pytest

from picojoule import zoo
from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from recipe_keys import BASE, DEFAULTS_AND_OTHERS, message

MISTAKES: list[tuple[str, tuple[str, ...]]] = [  # an override, and what the sentence must contain
    # keys
    ("penalty.strenght=3", ("penalty.strenght", "did you mean penalty.strength?")),
    ("strength=3", ("strength", "penalty.strength")),
    ("Penalty.Strength=3", ("Penalty.Strength", "penalty.strength")),
    ("kind=syn", ("neuron.kind or penalty.kind",)),
    ("penalty.lmit=3", ("penalty.lmit", "did you mean data.limit?")),
    ("modle.nam=cnn7", ("modle.nam", "did you mean model.name?")),
    ("trainig.epochs=3", ("trainig.epochs", "training.epochs")),
    ("penalty.qqqq=3", ("penalty.qqqq", "penalty.kind")),
    ("qqqq=3", ("qqqq", "seed", "training")),
    ("penalty=3", ("penalty is a section", "penalty.strength")),
    ("nonsense", ("'nonsense'", "section.key=value")),
    # words
    ("model.name=cnn8", ("model.name", "'cnn8'", "did you mean 'cnn7'?", "package.module:factory")),
    ("model.name=my package:make", ("'my package:make'", "package.module:factory")),
    ("model.name=package:", ("'package:'",)),
    ("data.name=cifar10", ("data.name", "'cifar10'", "did you mean 'cifar-10'?")),
    ("neuron.kind=spkie", ("did you mean 'spike'?",)),
    ("neuron.kind=transformer", ("'transformer'", "'spike', 'relu', 'qrelu', 'if' or 'lif'")),
    ("neuron.reset=zeroo", ("neuron.reset", "did you mean 'zero'?")),
    ("training.start_from=../elsewhere", ("training.start_from = '../elsewhere'", "name of a finished run's folder")),
    ("training.start_from=", ("training.start_from = ''", "name of a finished run's folder")),
    ("penalty.budget=30", ("penalty.budget = 30", "a share of the unpenalised energy", "'2 uJ'")),
    ("penalty.rise_from=-1", ("penalty.rise_from = -1", "0 or more")),
    ("penalty.guard=perhaps", ("penalty.guard = 'perhaps'", "true or false")),
    ("penalty.reference=/tmp/run", ("penalty.reference = '/tmp/run'", "name of a finished run's folder")),
    ("neuron.surrogate=S3NN", ("'S3NN'", "did you mean 's3nn'?")),
    ("optimizer.name=adamw", ("did you mean 'adam'?",)),
    ("penalty.kind=sym", ("penalty.kind = 'sym'", "did you mean 'syn'?")),
    ("penalty.schedule=lin", ("did you mean 'linear'?",)),
    ("energy.psi=excat", ("did you mean 'exact'?",)),
    ("energy.chains=merge", ("energy.chains = 'merge'", "did you mean 'merged'?")),
    ("energy.hardware=lohi", ("energy.hardware = 'lohi'", "did you mean 'loihi'?")),
    ("training.precision=16", ("'16'", "'auto', '32' or 'bf16-mixed'")),
    ("training.kernels=sparse", ("'sparse'", "'auto', 'measured' or 'dense'")),
    ("optimizer.anneal=steps", ("'steps'", "'epochs' or 'batches'")),
    ("penalty.budget_on=all", ("penalty.budget_on = 'all'", "'spikes' or 'total'")),
    # types
    ("penalty.strict=1", ("penalty.strict = 1", "true or false")),
    ("model.args=3", ("model.args = 3", "a table of plain values")),
    ("model.args.width=nan", ("model.args.width = nan is not allowed", "a finite number")),
    ("model.args={a = 1, b = [1, inf]}", ("model.args.b = [1, inf] is not allowed",)),
    ("data.content=x", ("data.content = 'x'", "sixteen hexadecimal digits")),
    ("data.shape=3", ("data.shape = 3", "a list of one, three or four whole numbers")),
    ("data.frames=0", ("data.frames = 0", "whole number from 1 to 10000")),
    ("data.encoding=rates", ("data.encoding = 'rates'", "'spikes' or 'currents'")),
    ("data.threshold=0", ("data.threshold = 0", "finite number above 0")),
    ("data.size=0", ("data.size = 0", "whole number from 1 to 4096")),
    ("data.classes=1", ("data.classes = 1", "whole number from 2 to")),
    ("seed=1.0", ("seed = 1.0", "whole number from 0 to 4294967295")),
    ("seed=true", ("seed = true", "whole number")),
    ("seed=", ("seed = ''", "whole number")),
    ("seed=1\nx = 2", ("seed = '1\\nx = 2'",)),
    ("seed=[1]", ("seed = [1]",)),
    ("seed={a = 1}", ("seed = a table",)),
    ("seed=1979-05-27", ("seed = 1979-05-27",)),
    ("data.augment=True", ("data.augment = 'True'", "true or false")),
    ("data.augment=1", ("data.augment = 1", "true or false")),
    ("optimizer.lr=fast", ("optimizer.lr = 'fast'", "finite number above 0")),
    ("optimizer.lr=true", ("optimizer.lr = true", "finite number above 0")),
    ("training.epochs=5.0", ("training.epochs = 5.0", "whole number from 1 to")),
    # numbers
    ("penalty.p=0.5", ("penalty.p = 0.5", "from 1 to 127")),
    ("penalty.p=nan", ("penalty.p = nan", "finite")),
    ("penalty.strength=-1", ("penalty.strength = -1", "0 or more")),
    ("penalty.strength=inf", ("penalty.strength = inf", "finite")),
    ("neuron.threshold=-inf", ("neuron.threshold = -inf", "finite")),
    ("neuron.tau=0", ("neuron.tau = 0", "above 0")),
    ("neuron.alpha=0", ("neuron.alpha = 0", "above 0")),
    ("neuron.alpha=-1", ("neuron.alpha = -1", "above 0")),
    ("neuron.leak=1.5", ("neuron.leak = 1.5", "finite number from 0 to 1")),
    ("neuron.floor=0.5", ("neuron.floor = 0.5", "finite number of 0 or less")),
    ("neuron.max_spikes=0", ("neuron.max_spikes = 0", "whole number from 1")),
    ("penalty.target=0", ("penalty.target = 0", "finite number above 0")),
    ("optimizer.lr=0", ("optimizer.lr = 0", "above 0")),
    ("optimizer.lr=-1e-3", ("optimizer.lr = -0.001", "above 0")),
    ("optimizer.weight_decay=-1", ("optimizer.weight_decay = -1", "0 or more")),
    ("training.epochs=0", ("training.epochs = 0", "from 1")),
    ("training.batch_size=1", ("training.batch_size = 1", "from 2")),
    ("training.threads=0", ("training.threads = 0", "from 1")),
    ("data.randaugment_n=0", ("data.randaugment_n = 0", "from 1 to 15")),
    ("data.randaugment_m=30", ("data.randaugment_m = 30", "from 1 to 29")),
    ("data.randaugment_m=-1", ("data.randaugment_m = -1", "from 1 to 29")),
    ("data.pad=-1", ("data.pad = -1", "from 0")),
    ("seed=-1", ("seed = -1", "from 0")),
    ("seed=0x" + "f" * 5000, ("seed = a huge number", "4294967295")),
    ("optimizer.lr=0x" + "f" * 5000, ("optimizer.lr = a huge number", "finite")),
    ("optimizer.lr=0x" + "f" * 500, ("optimizer.lr = ", "...", "finite")),
    # combinations
    ("neuron.threshold=0", ("neuron.threshold = 0", "neuron.surrogate = 's3nn'", "above 0")),
    ("neuron.threshold=-1.5", ("neuron.threshold = -1.5", "'s3nn'")),
    ("neuron.steps=4", ("neuron.steps = 4", "neuron.kind = 'spike'", "neuron.steps = 1")),
    ("neuron.leak=0.5", ("neuron.leak = 0.5", "neuron.kind = 'spike'", "take neuron.kind = 'lif'")),
    ("neuron.reset=zero", ("neuron.reset = 'zero'", "neuron.kind = 'spike'", "take neuron.kind = 'if' or 'lif'")),
    ("penalty.kind=target", ("penalty.target is missing", "penalty.reference")),
    ("penalty.target=0.5", ("penalty.target = 0.5", "penalty.kind = 'syn'", "take penalty.kind = 'target'")),
    ("penalty.reference=run", ("penalty.reference = 'run'", "penalty.kind = 'syn'")),
    ("data.limit=9", ("data.limit = 9", "from 10", "to 54000")),
    ("data.limit=54001", ("data.limit = 54001", "to 54000")),
    ("data.limit_validation=6001", ("data.limit_validation = 6001", "from 10", "to 6000")),
    ("data.limit_test=9", ("data.limit_test = 9", "from 10", "to 10000")),
    ("data.pad=0", ("data.pad = 0", "28×28", "'cnn7'", "32×32", "data.pad = 2")),
    ("data.pad=4", ("data.pad = 4", "36×36", "data.pad = 2")),
]


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[override[:30] for override, _ in MISTAKES])
def test_a_mistake_is_one_sentence_that_names_key_value_and_remedy(override: str, words: tuple[str, ...]) -> None:
    said = message(BASE, override)
    for word in words:
        assert word in said


@pytest.mark.parametrize("name", ["classes", "in_channels", "input_shape", "neuron", "steps"])
def test_what_the_recipe_gives_to_a_factory_is_no_argument_of_its_own(name: str) -> None:
    said = message(BASE, "model.name=package.module:factory", f"model.args.{name}=3")
    assert f"model.args.{name} is not allowed, for the factory gets {name} from" in said
    with pytest.raises(PicojouleError, match=f"model.args.{name} is given to torch.nn:Identity by picojoule itself"):
        zoo.imported.build("torch.nn:Identity", {name: 3}, **{name: 4})


def test_every_key_has_a_mistake_in_the_table() -> None:
    untested = set(DEFAULTS_AND_OTHERS) - {override.partition("=")[0] for override, _ in MISTAKES}
    # The remaining ones are switches, like data.augment.
    assert untested == {"data.normalize", "optimizer.decay_batch_norm", "penalty.normalized"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("model.name is missing", "'cnn7'")),
        ('model.name = "cnn7"', ("data.name is missing", "'fashion-mnist'")),
        ('model.name = "cnn7"\ndata.nam = "digits"', ("data.nam", "did you mean data.name?")),
        ('[modle]\nname = "cnn7"', ("modle", "did you mean model?")),
        (BASE + "strength = 3", ("strength", "penalty.strength")),
        (BASE + "penalty = 3", ("penalty = 3", "section", "penalty.kind")),
        (BASE + "training.precision = 32", ("training.precision = 32", "did you mean '32'?")),
        (BASE + "self = 1", ("no key self",)),
        (BASE + '"a\\nb" = 1', (r"'a\nb'",)),
        (BASE + '"" = 1', ("no key ''",)),
        (BASE + "[penalty]\nkind = syn", ("not valid TOML", "line 4")),
        (BASE + "seed =", ("not valid TOML", "line 3")),
        (BASE + "seed = 1\nseed = 2", ("not valid TOML", "line 4")),
        (BASE + "\nseed = [\n", ("not valid TOML", "line 5")),
        (BASE + "a = " + "[" * 5000, ("nested too deeply",)),
        (BASE + "seed = " + "9" * 5000, ("thousands of digits",)),
        (BASE + f'penalty.kind = "{"x" * 5000}"', ("penalty.kind = 'xxx", "...", "'syn'")),
    ],
)
def test_a_mistake_in_the_text_is_one_sentence(text: str, words: tuple[str, ...]) -> None:
    said = message(text)
    assert len(said) < 500
    for word in words:
        assert word in said


def test_the_constructor_speaks_the_same_language() -> None:
    with pytest.raises(PicojouleError, match=r"penalty\.p = 0\.5 is not allowed: take a finite number from 1 to 127"):
        Recipe(model={"name": "cnn7"}, data={"name": "digits"}, penalty={"p": 0.5})


QUOTED = "write data.name without quotes, in which a dot is a letter like any other"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('"data.name"', ("no key 'data.name': ", QUOTED)),
        ('"data.name "', ("no key 'data.name ': did you mean data.name?",)),
        ('data."name "', ("no key data.'name ': did you mean data.name?",)),
        ('data."na\u200bme"', ("no key data.'na\\u200bme' (with ZERO WIDTH SPACE): did you mean data.name?",)),
        ('data."n\u0430me"', ("(with CYRILLIC SMALL LETTER A): did you mean data.name?",)),
        ("data.NAME", ("no key data.NAME: did you mean data.name?",)),
    ],
)
def test_no_key_is_suggested_that_looks_like_the_one_that_is_refused(written: str, words: tuple[str, ...]) -> None:
    said = message(f'model.name = "cnn7"\n{written} = "digits"')
    refused, _, suggested = said.removeprefix("there is no key ").partition(": did you mean ")
    assert refused != suggested.removesuffix("?")
    for word in words:
        assert word in said
