"""Reports as data: sections, and the reports of a run and of a ladder. `regard.render` draws them."""
