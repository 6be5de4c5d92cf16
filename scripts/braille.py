"""Makes braille.npz of the pickle that the authors of the Braille data publish (zenodo.org/records/7050094).

    python scripts/braille.py data_braille_letters_digits.pkl braille.npz

A pickle runs code when it is opened, here with pandas: do it only with the file from that address. What was made is
checked when picojoule reads it: `picojoule data fetch braille --from FOLDER`.
"""

from __future__ import annotations

import pickle
import sys

import numpy as np


def main(source: str, target: str) -> None:
    with open(source, "rb") as file:
        readings = pickle.load(file)
    columns = {
        key: [row[key] for row in readings] if isinstance(readings, list) else list(readings[key])
        for key in ("letter", "taxel_data")
    }
    letters = np.array(sorted(set(columns["letter"])))
    taxels = np.stack([np.asarray(each) for each in columns["taxel_data"]])
    if not np.array_equal(taxels, taxels.astype(np.uint8)):
        sys.exit(f"{source} has readings that are not whole numbers from 0 to 255: take the file of raw readings")
    labels = np.searchsorted(letters, columns["letter"]).astype(np.uint8)
    np.savez_compressed(target, taxels=taxels.astype(np.uint8), labels=labels, letters=letters)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
