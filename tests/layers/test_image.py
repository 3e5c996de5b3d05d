"""Cells of an image: their numbering, and what a cell depends on."""

import torch

from regard.layers.image import GridPositions, PixelEncoder


def test_cells_are_numbered_row_by_row() -> None:
    grid = GridPositions(2, 3, 4)
    found = grid(torch.zeros(1, 6, 4))[0]
    for number, vector in enumerate(found):
        row, column = divmod(number, 3)
        assert torch.equal(vector, grid.rows[row, 0] + grid.columns[0, column])
    assert torch.equal(grid(torch.zeros(1, 4, 4))[0], found[:4])  # the last cells may be missing


def test_a_cell_depends_on_its_own_part_of_the_image() -> None:
    torch.manual_seed(1)
    encoder = PixelEncoder(8, blocks=2).double()
    pixels = torch.full((1, 8, 16, 3), 100.0, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder(pixels)[0, 1 * 4 + 3].square().sum(), pixels)  # of row 1, column 3
    read = gradient[0].abs().sum(-1).nonzero()
    assert read.amin(0).tolist() == [4 - 3, 12 - 3]
    assert read.amax(0).tolist() == [4 + 3, 12 + 3]  # 2^(blocks + 1) − 1 pixels around the first of its own
