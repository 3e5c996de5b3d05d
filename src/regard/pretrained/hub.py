"""Checkpoints of the Hugging Face hub, `hf:NAME` or `hf:NAME@REVISION`, through the optional `huggingface_hub`."""

from pathlib import Path

from regard.errors import UserError
from regard.file_io import named_path

HUB_PREFIX = "hf:"
FILES = ["*.json", "*.safetensors", "*.model", "*.spm", "vocab.txt", "merges.txt", "*/vocab.txt", "*/merges.txt"]
PICKLED = ["pytorch_model.bin", "*/pytorch_model.bin"]
OTHERS = ["onnx/*", "openvino/*", "coreml/*", "*.msgpack"]  # the same weights for other engines


def resolve_hub_path(path: str | Path, download: bool = False, allow_pickle: bool = False) -> Path:
    """The directory of a checkpoint: the path itself, or for `hf:NAME` the folder of its files on this machine.

    Files are downloaded only with `download`: settings, safetensors and tokenizer files, and pickled weights only with
    `allow_pickle`.
    """
    if not str(path).startswith(HUB_PREFIX):
        return named_path(path)
    name, _, revision = str(path).removeprefix(HUB_PREFIX).partition("@")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise UserError(
            f"{path}: needs the huggingface_hub package; install it with: pip install 'regard[hub]'"
        ) from None
    try:
        folder = snapshot_download(
            name,
            revision=revision or None,
            allow_patterns=[*FILES, *(PICKLED if allow_pickle else [])],
            ignore_patterns=OTHERS,
            local_files_only=not download,
        )
    except HFValidationError:
        raise UserError(f"{path}: not a valid name; give hf:OWNER/NAME, such as hf:openai-community/gpt2.") from None
    except LocalEntryNotFoundError as error:
        if download:
            raise UserError(f"{path}: cannot be reached, and is not on this machine; check the connection.") from error
        raise UserError(
            f"{path}: is not on this machine; add --download (in Python: download=True) to fetch it."
        ) from error
    except Exception as error:  # no such repository, no permission, no network: the message explains it
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        raise UserError(f"{path}: cannot be fetched ({reason}).") from error
    if not any((Path(folder) / file).is_file() for file in ("config.json", "modules.json")):
        advice = "the repository may have no model" if download else "add --download to fetch the rest"
        raise UserError(f"{path}: has no config.json on this machine; {advice}.")
    return Path(folder)
