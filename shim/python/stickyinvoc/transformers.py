"""A language model's state as a model of the transformers package, on the shared bytes.

    model = stickyinvoc.transformers.load("llama-8b")
    tokenizer = stickyinvoc.transformers.load_tokenizer("llama-8b")

The matrices are used where they are; loading reads none of them. They are read-only, as all of a
state: training, or moving weights in place, ends this process with SIGSEGV (see stickyinvoc.torch).
"""

import contextlib
import json
import re

from . import torch as _torch
from ._errors import InvalidArgument, NotFound
from ._state import State, attach
from ._vocabulary import make_tokenizer

_FLOATS = ("f16", "bf16", "f32", "f64")
_NAMES_SHOWN_MAX = 5


def load(state, **options):
    """The model of `state` (a State, or a name for attach(), which gets `options`).

    Any model that transformers makes of the state's config.json with AutoModelForCausalLM, whose
    parameters are the state's tensors. It is in eval mode, and keeps the attachment.
    Matrices are never copied. Vectors (norms, biases) are float32 in a state; when the matrices
    are not, the vectors are copied into the matrices' dtype, as an ordinary load in it has them.

    Raises NotFound when the state is no language model, InvalidArgument when transformers does not
    know this kind of model or has other parameters than the state.
    """
    state = _attached(state, options)
    import torch
    import transformers

    config = _config(state, transformers)
    with _parameters_on_meta(torch):
        model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    _assign(model, state, torch)
    if "generation_config.json" in state.asset_names():
        settings = json.loads(bytes(state.asset("generation_config.json")))
        model.generation_config = transformers.GenerationConfig.from_dict(settings)
    return model.eval()


def load_tokenizer(state, **options):
    """The tokenizer of `state` as a PreTrainedTokenizerFast, with the state's chat template.

    Made of the asset `tokenizer.json` if there is one (a builder's), else of the `vocabulary` that
    the loader compiled: it gives the same ids as the file that the state was loaded from.
    Raises NotFound when the state has neither.
    """
    state = _attached(state, options)
    return make_tokenizer(state, _config_of(state) or {})


def _attached(state, options):
    if not isinstance(state, State):
        return attach(state, **options)
    if options:
        raise InvalidArgument("load a model: options are for attaching, and the state is attached")
    return state


def _config_of(state):
    if "config.json" not in state.asset_names():
        return None
    return json.loads(bytes(state.asset("config.json")))


def _config(state, transformers):
    settings = _config_of(state)
    name = state.info.name
    if settings is None:
        raise NotFound(
            f"load '{name}' as a model: it has no config.json, so it is no language model"
        )
    kind = settings.get("model_type")
    version = transformers.__version__
    if kind not in transformers.CONFIG_MAPPING:
        raise InvalidArgument(
            f"load '{name}' as a model: transformers {version} knows no model_type {kind!r};"
            " a newer one may"
        )
    if int(version.split(".")[0]) < 5:
        _spell_rotary_as_before(settings, name)
    settings.pop("auto_map", None)  # code from elsewhere: a state has none
    settings.pop("dtype", None)
    settings["torch_dtype"] = _matrix_dtype(state, name)
    return transformers.CONFIG_MAPPING[kind].from_dict(settings)


def _spell_rotary_as_before(settings, name):
    """transformers 4 overlooks `rope_parameters`, and would compute with other rotations."""
    rotary = settings.pop("rope_parameters", None)
    if rotary is None:
        return
    if any(isinstance(value, dict) for value in rotary.values()):
        raise InvalidArgument(
            f"load '{name}' as a model: its config.json has rope_parameters for each kind of layer,"
            " which needs transformers 5"
        )
    rotary = dict(rotary)
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rotary:
            settings[key] = rotary.pop(key)
    plain = rotary.get("rope_type", "default") == "default"
    settings["rope_scaling"] = None if plain else rotary


def _matrix_dtype(state, name):
    """The one dtype of the state's matrices, as torch spells it."""
    infos = [state.tensor_info(tensor) for tensor in state.tensor_names()]
    dtypes = {info.dtype for info in infos if len(info.shape) > 1}
    if len(dtypes) != 1 or not dtypes <= set(_FLOATS):
        found = ", ".join(sorted(dtypes)) or "none"
        raise InvalidArgument(
            f"load '{name}' as a model: its matrices must have one floating-point dtype, and have"
            f" {found}"
        )
    return _torch._TYPES[dtypes.pop()]


@contextlib.contextmanager
def _parameters_on_meta(torch):
    """While it lasts, new modules' parameters have no memory; buffers, which are computed, do.

    Not while another thread makes modules: it changes torch.nn.Module.
    """
    register = torch.nn.Module.register_parameter

    def register_on_meta(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None and parameter.device.type != "meta":
            on_meta = torch.nn.Parameter(parameter.to("meta"), requires_grad=False)
            module._parameters[name] = on_meta

    torch.nn.Module.register_parameter = register_on_meta
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def _assign(model, state, torch):
    """Puts the state's tensors in the place of the model's parameters, all or none."""
    doing = f"load '{state.info.name}' as {type(model).__name__}: "
    places = {
        f"{path}.{name}" if path else name: (module, name, parameter)
        for path, module in model.named_modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
    }
    names = set(state.tensor_names())
    buffers = {name for name, _ in model.named_buffers()}
    _require_none(doing + "the state does not have ", places.keys() - names)
    _require_none(doing + "the model has no place for ", names - places.keys() - buffers)
    dtype = getattr(torch, _matrix_dtype(state, state.info.name))
    made = {}  # tied tensors have one address, and become one parameter
    for full_name, (module, name, before) in places.items():
        tensor = _torch.tensor(state, full_name)
        if tensor.shape != before.shape:
            raise InvalidArgument(
                f"{doing}'{full_name}' is {list(tensor.shape)}, and the model has it as"
                f" {list(before.shape)}"
            )
        key = (tensor.data_ptr(), tensor.shape)
        if key not in made:
            made[key] = torch.nn.Parameter(tensor.to(dtype), requires_grad=False)
        module._parameters[name] = made[key]


def _require_none(what, names):
    # Numbers of layers are folded, lest one reason be said for each.
    shown = [name.encode("unicode_escape").decode() for name in names]
    folded = sorted({re.sub(r"\.\d+\.", ".*.", name) for name in shown})
    if folded:
        rest = len(folded) - _NAMES_SHOWN_MAX
        more = f" and {rest} more" if rest > 0 else ""
        raise InvalidArgument(what + ", ".join(folded[:_NAMES_SHOWN_MAX]) + more)
