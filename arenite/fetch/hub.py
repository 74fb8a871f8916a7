"""Files of Hugging Face repositories, fetched by huggingface_hub where it is installed.

It goes on with a download that broke off and shows its own progress.
"""

from __future__ import annotations

from pathlib import Path

from arenite.errors import FileMissing, NotSupported
from arenite.fetch.source import Source


def fetch_from_hub(source: Source, partial: Path, target: Path) -> None:
    """Put all files of a source into `target`; `partial` keeps what came before a break."""
    try:
        import huggingface_hub
    except ImportError:
        raise NotSupported(
            f"{source.name} is fetched by huggingface_hub, which is not installed; "
            "pip install 'arenite[hub]'"
        ) from None
    paths = []
    for file in source.files:
        try:
            fetched = huggingface_hub.hf_hub_download(
                source.origin, file.member, revision=source.version, local_dir=partial / "hub"
            )
        # Its errors come from its HTTP library, its own modules and the system.
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise FileMissing(
                f"{source.name}: {file.member} can't be fetched: {said[0]}"
            ) from error
        paths.append(Path(fetched))
    target.mkdir(mode=0o700, exist_ok=True)
    for path, file in zip(paths, source.files, strict=True):
        path.rename(target / file.name)
