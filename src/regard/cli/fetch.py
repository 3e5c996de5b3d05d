"""Progress bars for downloads of public corpora (`--download`)."""

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from regard.data.download import REMOTE_FILES, DownloadProgress, download


def fetch_data(data: object, console: Console) -> None:
    """Download the missing files of the data, with a progress bar for each and a line when it is complete."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: DownloadProgress) -> None:
            if progress.name not in tasks:
                tasks[progress.name] = bars.add_task(progress.name, total=progress.total)
            bars.update(tasks[progress.name], completed=progress.bytes)
            if progress.sha256 is not None:
                console.print(_completed(progress), highlight=False, markup=False, soft_wrap=True)

        download(data, show)


def _completed(progress: DownloadProgress) -> str:
    """The line for a complete file."""
    remote = REMOTE_FILES.get(progress.name)
    checked = "as expected" if remote and remote.sha256 else "not checked, written to a file beside it"
    return f"{progress.name}: {progress.bytes:,} bytes from {progress.url}, SHA-256 {progress.sha256}, {checked}"
