"""A recipe: everything that decides a run, as one typed, frozen value; TOML on disk.

Convention: a key is ``section.key``; ``seed`` stands alone. Only ``model.name`` and ``data.name`` have no default.
What a recipe leaves out is filled in when it is loaded, so a stored recipe is complete, and its digest, which names the
run, covers every value. Types are strict, but an integer is taken where a number is wanted. Every mistake is one
sentence that names the key, the value, and what is allowed.

`sections` declares the keys and `values` their types; `checks` refuses keys that do not go together; `toml` reads
files, `changes` varies a recipe; `keys`, `messages` and `phrases` put a mistake into words; `recipe` joins all this.
"""

from picojoule.recipe.recipe import Recipe

__all__ = ["Recipe"]
