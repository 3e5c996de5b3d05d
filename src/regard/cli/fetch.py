"""Public corpora on their way, as a person sees it: what `--download` does."""

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from regard.data.download import HOMES, Arrival, download


def fetch_data(data: object, console: Console) -> None:
    """Fetch what of the data is not here yet, with a bar for each file and a line when it has come."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(arrival: Arrival) -> None:
            if arrival.name not in tasks:
                tasks[arrival.name] = bars.add_task(arrival.name, total=arrival.total)
            bars.update(tasks[arrival.name], completed=arrival.bytes)
            if arrival.sha256 is not None:
                console.print(_message(arrival), highlight=False, markup=False, soft_wrap=True)

        download(data, show)


def _message(arrival: Arrival) -> str:
    """The message about a file that has been downloaded."""
    home = HOMES.get(arrival.name)
    checked = "as it should be" if home and home.sha256 else "which is noted beside it, not checked"
    return f"{arrival.name}: {arrival.bytes:,} bytes from {arrival.url}, SHA-256 {arrival.sha256}, {checked}"
