"""Checkpoints by name, `hf:NAME` or `hf:NAME@REVISION`, through `huggingface_hub`: an extra, and only when asked."""

from pathlib import Path

from regard.errors import UserError

SIGN = "hf:"
FILES = ["*.json", "*.safetensors", "*.model", "*.spm", "vocab.txt", "merges.txt", "*/vocab.txt", "*/merges.txt"]
PICKLED = ["pytorch_model.bin", "*/pytorch_model.bin"]
OTHERS = ["onnx/*", "openvino/*", "coreml/*", "*.msgpack"]  # the same weights for other engines


def found(path: str | Path, download: bool = False, allow_pickle: bool = False) -> Path:
    """The directory that a path names: the path itself, or for `hf:NAME` where that checkpoint lies on this machine.

    Only with `download` is anything fetched: settings, safetensors and tokenizer files; pickled weights only where they
    are allowed.
    """
    if not str(path).startswith(SIGN):
        return Path(path)
    name, _, revision = str(path).removeprefix(SIGN).partition("@")
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
        raise UserError(f"{path}: no such name can be; give hf:OWNER/NAME, such as hf:openai-community/gpt2.") from None
    except LocalEntryNotFoundError as error:
        if download:
            raise UserError(f"{path}: cannot be reached, and is not on this machine; check the connection.") from error
        raise UserError(
            f"{path}: is not on this machine; say --download (in Python: download=True) to fetch it."
        ) from error
    except Exception as error:  # no such repository, no right to it, no network: its own words say it best
        raise UserError(f"{path}: cannot be fetched ({_first_line(error)}).") from error
    if not any((Path(folder) / file).is_file() for file in ("config.json", "modules.json")):
        cure = "it may hold no model" if download else "say --download to fetch the rest"
        raise UserError(f"{path}: has no config.json on this machine; {cure}.")
    return Path(folder)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
